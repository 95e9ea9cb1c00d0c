"""Listeners of TLS: what clients of several kinds do there, and what is said of those that may not."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.support.broker_process import BrokerProcess
from tests.support.certificates import Authority

DEADLINE_SECONDS = 60


class SecuredBroker:
    """A broker with a listener of TLS, and what its clients are given."""

    def __init__(self, directory: Path, settings: dict[str, object] | None = None) -> None:
        self.authority = Authority()
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.trusted = directory / "ca.pem"
        self.trusted.write_text(self.authority.pem)
        self.keystore = self.authority.issue().write(directory, "broker")
        tls = {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.keystore}
        self.process = BrokerProcess(directory, {"listeners": "SSL://127.0.0.1:0", **tls, **(settings or {})})

    @property
    def librdkafka(self) -> dict[str, object]:
        """The settings of a client of librdkafka."""
        return {
            "bootstrap.servers": self.process.bootstrap,
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.trusted),
        }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    broker = SecuredBroker(tmp_path_factory.mktemp("tls"))
    broker.process.start()
    yield broker
    broker.process.stop()


def test_h07_librdkafka_writes_and_reads_over_tls(secured: SecuredBroker) -> None:
    values = [b"small", bytes(range(256)) * 3800, b""]
    producer = Producer(secured.librdkafka)
    failures: list[object] = []
    for value in values:
        producer.produce("plain", value, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(DEADLINE_SECONDS) == 0
    assert failures == [None] * len(values)
    consumer = Consumer({**secured.librdkafka, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["plain"])
    records = [consumer.poll(DEADLINE_SECONDS) for _ in values]
    consumer.close()
    assert [None if record is None else record.value() for record in records] == values
