"""Java's tools over TLS with a certificate of their own, in stores of PKCS#12 (users.md row 24)."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.compatibility import preparation
from tests.support.deadline import deadline_s, wait_until
from tests.support.secured_broker import SecuredBroker

pytestmark = [pytest.mark.compat, pytest.mark.needs("kafka")]

TOOLS = "org.apache.kafka.tools"
RECORDS = 20_000
STORE = "opened by this"


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[SecuredBroker]:
    broker = SecuredBroker(tmp_path, {"ssl.client.auth": "required"})
    (tmp_path / "trusted.p12").write_bytes(broker.authority.pkcs12_truststore(STORE))
    (tmp_path / "own.p12").write_bytes(broker.authority.issue("alice").pkcs12(STORE))
    broker.process.start()
    yield broker
    broker.process.stop()


def java(secured: SecuredBroker, tool: str, *arguments: str, shows: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a tool as a client that trusts the authority; ``shows``: with a certificate of its own."""
    lines = ["security.protocol=SSL"]
    for kind, name in (("truststore", "trusted"), *((("keystore", "own"),) if shows else ())):
        lines += [f"ssl.{kind}.type=PKCS12", f"ssl.{kind}.location={secured.directory / name}.p12"]
        lines.append(f"ssl.{kind}.password={STORE}")
    file = secured.directory / "client.properties"
    file.write_text("\n".join(lines))
    classes = f"{preparation.JARS}/*{os.pathsep}{preparation.KAFKA_JARS}/*"
    options = ["--bootstrap-server", secured.bootstrap, "--command-config", str(file)]
    command = ["java", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", classes, f"{TOOLS}.{tool}", *options, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=deadline_s(60), check=False)


def test_h07_java_writes_and_reads_with_a_certificate_and_is_rejected_without(secured: SecuredBroker) -> None:
    count = str(RECORDS)
    created = java(secured, "TopicCommand", "--create", "--topic", "java", "--partitions", "2")
    assert created.returncode == 0, created.stderr
    sent = java(
        secured,
        *("ProducerPerformance", "--topic", "java", "--num-records", count),
        *("--record-size", "1000", "--throughput", "-1"),
    )
    assert f"{count} records sent" in sent.stdout, sent.stderr
    read = java(secured, "ConsumerPerformance", "--topic", "java", "--num-records", count)
    assert f", {count}, " in read.stdout, read.stdout + read.stderr
    refused = java(secured, "TopicCommand", "--list", shows=False)
    assert refused.returncode == 1
    assert "SSL" in refused.stdout + refused.stderr
    cause = "the client has no certificate, and ssl.client.auth is required"
    wait_until(lambda: cause in secured.process.log_text(), "the line")
