"""MirrorMaker 2 at a broker that requires a user and rights; `ops/compat --only mirror` has the rest."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ops.benchmarks.kafka import kafka
from ops.compatibility.mirror_maker import MirrorMaker
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s, wait_until

pytestmark = [pytest.mark.compat, pytest.mark.needs("mirror"), pytest.mark.timeout(200)]

PASSWORD = "of mirror's, secret"  # noqa: S105 - a planted one
RECORDS = 100


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Yield a broker with a listener for a superuser, and one of SASL."""
    line = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_mirror="{PASSWORD}";'
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": line,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "num.network.threads": 1,
        "num.io.threads": 2,
    }
    broker = BrokerProcess(tmp_path / "broker", settings)
    broker.start()
    yield broker
    broker.stop()


def test_what_its_user_needs_is_what_the_page_says(secured: BrokerProcess, tmp_path: Path) -> None:
    """Rights to read topics, their settings and groups are enough; its password is in no file but the client's."""
    open_address, sasl_address = secured.status()["bootstrap"].split(",")
    for rights in (("read", "describe", "describe-configs"), ("describe",)):
        resource = "--topic" if len(rights) > 1 else "--group"
        operations = [word for right in rights for word in ("--operation", right)]
        done = secured.command("acl", "add", "--allow-principal", "User:mirror", *operations, resource, "*")
        assert done.returncode == 0, done.stderr
    producer = Producer({"bootstrap.servers": open_address})
    for number in range(RECORDS):
        producer.produce("orders", str(number).encode(), partition=0)
    assert producer.flush(deadline_s()) == 0
    group = {"group.id": "readers", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    with_position = Consumer({"bootstrap.servers": open_address, **group})
    with_position.commit(offsets=[TopicPartition("orders", 0, RECORDS)], asynchronous=False)
    with_position.close()

    properties = tmp_path / "client.properties"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} required username="mirror" password="{PASSWORD}";\n'
    )
    with kafka(tmp_path / "kafka") as target:
        there = f"127.0.0.1:{target.port}"
        maker = MirrorMaker(tmp_path, "--bootstrap", sasl_address, "--to", there, "--command-config", str(properties))
        assert PASSWORD not in (tmp_path / "mirror.properties").read_text()
        maker.start()
        try:
            admin = AdminClient({"bootstrap.servers": there})
            arrives = "the topic"
            wait_until(lambda: "orders" in admin.list_topics(timeout=deadline_s()).topics, arrives, 200)
            consumer = Consumer({"bootstrap.servers": there, **group, "isolation.level": "read_committed"})
            consumer.assign([TopicPartition("orders", 0, 0)])
            values = [each.value() for each in consumer.consume(RECORDS, deadline_s())]
            assert values == [str(number).encode() for number in range(RECORDS)]

            def position() -> int:
                return int(consumer.committed([TopicPartition("orders", 0)], deadline_s())[0].offset)

            wait_until(lambda: position() == RECORDS, "the position of the group", 100)
            consumer.close()
        finally:
            maker.kill()
