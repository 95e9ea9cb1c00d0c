"""`rotunda produce` and `rotunda consume` by TLS and SASL, and against Apache Kafka 4.4."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.record_commands import WHOLE, Done, consumed, produce, read_by_kcat, rotunda
from tests.support.sasl_broker import PASSWORD, PROTOCOLS, SaslBroker
from tests.support.shared_kafka import SharedKafka

LINES = b"".join(b"k%d:%d\xff\n" % (number % 7, number) for number in range(500))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    """Yield a broker that speaks SASL."""
    running = SaslBroker(tmp_path_factory.mktemp("sasl"))
    yield running
    running.process.stop()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_by_the_options_of_the_other_commands(secured: SaslBroker, topic: str, tmp_path: Path, protocol: str) -> None:
    """A file of properties for both, also with a group; without it the error names the missing option."""
    file = tmp_path / "client.properties"
    file.write_text(
        f"security.protocol={protocol}\nsasl.mechanism=SCRAM-SHA-256\nsasl.username=alice\n"
        f"sasl.password={PASSWORD}\nssl.truststore.type=PEM\nssl.truststore.location={secured.trusted}\n"
        # The file may be another client's too.
        "group.id=unused\n"
    )
    address = secured.addresses[protocol]
    produce(address, topic, LINES, "-K", ":", "--command-config", str(file))
    assert consumed(address, topic, "-K", ":", "--command-config", str(file)) == LINES
    assert consumed(address, topic, "-K", ":", "--group", topic, "--command-config", str(file)) == LINES
    for name in ("produce", "consume"):
        refused = rotunda(address, name, topic, data=b"x\n")
        assert (refused.code, refused.out) == (1, b"")
        assert "a secured broker needs --command-config FILE" in refused.err
    wrong = rotunda(
        address, "consume", topic, "--command-config", str(file), "-X", "sasl.password=no", "-X", "sasl.username=alice"
    )
    assert wrong.code == 1
    assert "SASL_AUTHENTICATION_FAILED" in wrong.err


@pytest.mark.slow
@pytest.mark.needs("kafka")
def test_against_apache_kafka(apache_kafka: SharedKafka, topic: str) -> None:
    """Each codec, a transaction, groups, JSON and times; kcat reads the same."""
    address = apache_kafka.address()
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        produce(address, topic, LINES, "-K", ":", "-z", codec, "-H", "a=b")
    produce(address, topic, LINES, "-K", ":", "--transactional-id", topic)
    aborted = rotunda(address, "produce", topic, "--transactional-id", topic, "--json", data=b'{"value":"c"}\n{')
    assert aborted.code == 1
    assert consumed(address, topic, "-K", ":") == LINES * 6
    assert consumed(address, topic, "-f", WHOLE) == read_by_kcat(address, topic, "-f", WHOLE)
    assert consumed(address, topic, "-G", topic, "-c", "700") + consumed(address, topic, "-G", topic) == b"".join(
        line.partition(b":")[2] + b"\n" for line in (LINES * 6).splitlines()
    )
    produce(address, f"{topic}-copy", consumed(address, topic, "--json"), "--json")
    assert consumed(address, f"{topic}-copy", "-f", WHOLE) == consumed(address, topic, "-f", WHOLE)
    missing = rotunda(address, "consume", f"{topic}-cop")
    assert missing == Done(1, b"", f"rotunda: unknown topic {topic}-cop; did you mean {topic}-copy?\n")
