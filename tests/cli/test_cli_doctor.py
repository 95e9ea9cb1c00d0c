"""`rotunda doctor` at a broker without security: its findings, and mistakes of clients at such a port."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import pytest

from tests.support.broker_process import PAGE, BrokerProcess
from tests.support.command_line import command

BROKER_SETTINGS = {**PAGE, "num.network.threads": 1, "num.io.threads": 1}


def findings(*arguments: str, code: int) -> list[dict[str, Any]]:
    done = command("doctor", "--json", *arguments)
    assert done.returncode == code, (done.stdout, done.stderr)
    return json.loads(done.stdout)


def failed(found: list[dict[str, Any]]) -> str:
    """Return the one line with the remedy."""
    [text] = [each["text"] for each in found if each["level"] == "fail"]
    return str(text)


@pytest.fixture
def closed() -> Iterator[str]:
    """Yield an address on which nothing listens, nor can."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def listening_port(broker: BrokerProcess) -> int:
    """Return the port of a broker's listener, which may differ from the advertised one."""
    page = int(broker.status()["status_url"].rstrip("/").rpartition(":")[2])
    opened = psutil.Process(broker.pid()).net_connections(kind="tcp")
    [port] = {each.laddr.port for each in opened if each.status == psutil.CONN_LISTEN} - {page}
    return int(port)


def test_a_healthy_broker_is_healthy(broker: BrokerProcess) -> None:
    found = findings("--run-dir", str(broker.run_dir), code=0)
    of_this_machine = ["open files", "data directory"]
    of_clients = ["port", "protocol", "Kafka", "advertised", "clock", "acl"]
    assert [each["what"] for each in found] == of_clients + of_this_machine
    assert {each["level"] for each in found} == {"ok"}
    printed = broker.command("doctor").stdout.splitlines()
    assert [line.split()[0] for line in printed] == ["OK"] * 8


def test_few_descriptors_are_a_warning(broker: BrokerProcess) -> None:
    """Half of 64 are for others, and a partition needs four; only its own user may read a broker's limit."""
    (Path(broker.status()["data_dir"]) / "of-nobody").mkdir()
    for partition in range(9):
        (Path(broker.status()["data_dir"]) / f"kept-{partition}").mkdir()
    process = psutil.Process(broker.pid())
    before = process.rlimit(psutil.RLIMIT_NOFILE)
    process.rlimit(psutil.RLIMIT_NOFILE, (64, before[1]))
    try:
        [found] = [each for each in findings("--run-dir", str(broker.run_dir), code=0) if each["level"] != "ok"]
    finally:
        process.rlimit(psutil.RLIMIT_NOFILE, before)
    assert (found["level"], found["what"]) == ("warn", "open files")
    assert found["text"].startswith("9 partitions in ")
    assert "a limit of 64 open files" in found["text"]
    assert "has descriptors for 8 that are written to, of 9;" in found["text"]
    assert "to 100,000 to spare" in found["text"]
    assert not any(each["what"] == "open files" for each in findings("--bootstrap", broker.bootstrap, code=0))


def test_a_data_directory_that_every_user_can_read_is_a_warning() -> None:
    """Also in the log of the start."""
    with TemporaryDirectory(dir="/tmp") as outer:
        Path(outer).chmod(0o755)
        running = BrokerProcess(Path(outer), BROKER_SETTINGS, ephemeral=False)
        running.data_dir.mkdir()
        running.data_dir.chmod(0o755)
        running.start()
        try:
            [found] = [each for each in findings("--run-dir", str(running.run_dir), code=0) if each["level"] != "ok"]
            assert (found["level"], found["what"]) == ("warn", "data directory")
            assert f"data directory {running.data_dir} has mode 0755: every user of this machine" in found["text"]
            [line] = [line for line in running.log_text().splitlines() if "has mode 0755" in line]
            assert " WARNING " in line
        finally:
            running.stop()


def test_the_wrong_protocol_is_named(broker: BrokerProcess) -> None:
    for wrong, right in (("SSL", "PLAINTEXT"), ("SASL_SSL", "PLAINTEXT"), ("SASL_PLAINTEXT", "PLAINTEXT")):
        given = {"security.protocol": wrong, "sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b"}
        properties = [text for name, value in given.items() for text in ("--property", f"{name}={value}")]
        found = findings("--bootstrap", broker.bootstrap, *properties, code=1)
        assert f"security.protocol={right}" in failed(found), wrong


def test_ports_that_are_no_broker(broker: BrokerProcess, closed: str) -> None:
    assert "is not open" in failed(findings("--bootstrap", closed, code=1))
    page = broker.status()["status_url"].removeprefix("http://").rstrip("/")
    assert "speaks HTTP" in failed(findings("--bootstrap", page, "--timeout", "60", code=1))
    assert "unknown host name" in failed(findings("--bootstrap", "nobody.invalid:9092", code=1))
    several = findings("--bootstrap", f"{closed},{broker.bootstrap}", code=1)
    assert [each["level"] for each in several][:2] == ["fail", "ok"]


def test_an_advertised_address_that_leads_nowhere(broker_directory: Path, closed: str) -> None:
    settings = {**BROKER_SETTINGS, "advertised.listeners": f"PLAINTEXT://{closed}"}
    running = BrokerProcess(broker_directory, settings).start()
    try:
        given = f"127.0.0.1:{listening_port(running)}"
        [text] = [each["text"] for each in findings("--bootstrap", given, code=1) if each["level"] == "fail"]
        assert f"sends clients to {closed}" in text
        assert f"advertised.listeners to where clients reach it, as with `rotunda start --advertise {given}`" in text
    finally:
        running.stop()


def test_a_topic_that_is_not_there(broker: BrokerProcess) -> None:
    found = findings("--bootstrap", broker.bootstrap, "--topic", "nothing-of-the-kind", code=1)
    assert "create it" in failed(found)
    assert broker.command("topic", "list").stdout == "", "a look makes nothing"


def test_properties_that_cannot_be_used_are_named_without_their_secrets(broker: BrokerProcess, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    for text, complaint in (
        ("security.protocol=TLS", "security.protocol=TLS is none of"),
        ("security.protocol=SASL_SSL", "sasl.mechanism=GSSAPI, which is the default, is not known here"),
        ("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.password=hush-hush", "needs a user"),
        ("security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=/nowhere", "/nowhere"),
        ("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER", "needs a token"),
    ):
        file.write_text(text)
        done = command("doctor", "--bootstrap", broker.bootstrap, "--command-config", str(file))
        assert (done.returncode, done.stdout) == (2, "")
        assert complaint in done.stderr
        assert "hush" not in done.stderr
    assert command("doctor", "--bootstrap", "x:1", "--command-config", "/nowhere").returncode == 2
