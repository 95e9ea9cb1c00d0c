"""A configuration that was written for Kafka 4 starts a broker, and clients of several kinds use it.

Values are those of Kafka's own server.properties and broker.properties, of the environment of its container image and
of one in wide use; only ports are free ones, and the data directory is the test's.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from kafka.admin import KafkaAdminClient

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s

_PROTOCOLS = (
    "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,"
    "PLAINTEXT_HOST:PLAINTEXT"
)
_SIZES = {
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}
FILES = {
    "server.properties": {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": "localhost:9093",
        "listeners": "PLAINTEXT://:0,CONTROLLER://:9093",
        "inter.broker.listener.name": "PLAINTEXT",
        "advertised.listeners": "PLAINTEXT://localhost:0,CONTROLLER://localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": _PROTOCOLS,
        **_SIZES,
    },
}
ENVIRONMENTS = {
    "the image": {
        "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": _PROTOCOLS,
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT_HOST://localhost:0,PLAINTEXT://localhost:0",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@broker:29093",
        "KAFKA_LISTENERS": "CONTROLLER://:29093,PLAINTEXT_HOST://:0,PLAINTEXT://:0",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "KAFKA_HEAP_OPTS": "-Xmx1G",
    },
    "another image": {
        "KAFKA_BROKER_ID": "1",
        "KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": _PROTOCOLS,
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:0,PLAINTEXT_HOST://localhost:0",
        "KAFKA_METRIC_REPORTERS": "io.confluent.metrics.reporter.ConfluentMetricsReporter",
        "KAFKA_CONFLUENT_LICENSE_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "true",
        "KAFKA_JMX_PORT": "9101",
        "KAFKA_JMX_HOSTNAME": "localhost",
    },
}


def broker_of(directory: Path, file: Mapping[str, str], environment: Mapping[str, str]) -> BrokerProcess:
    """Return a broker whose only flags are a port for its status page and a data directory."""
    directory.mkdir()
    path = directory / "server.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in file.items()), encoding="utf-8")
    broker = BrokerProcess(directory, environment={"ROTUNDA_CONFIG": str(path), **environment}, ephemeral=False)
    del broker.settings["listeners"]
    return broker


@pytest.fixture(scope="module", params=[*FILES, *ENVIRONMENTS])
def stock(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Yield a broker of each configuration."""
    directory = tmp_path_factory.mktemp("stock") / "broker"
    broker = broker_of(directory, FILES.get(request.param, {}), ENVIRONMENTS.get(request.param, {}))
    broker.start()
    yield broker
    broker.stop()


def test_clients_use_a_broker_with_a_configuration_of_kafka(stock: BrokerProcess) -> None:
    """Row 15 of users.md."""
    address = stock.status()["bootstrap"].split(",")[0]
    assert address.startswith("localhost:")
    producer = Producer({"bootstrap.servers": address})
    for number in range(10):
        producer.produce("topic", str(number).encode())
    assert producer.flush(deadline_s()) == 0
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["topic"])
    messages = []
    while len(messages) < 10:
        messages += [each.value() for each in consumer.consume(10, deadline_s())]
    consumer.close()
    assert messages == [str(number).encode() for number in range(10)]
    admin = KafkaAdminClient(bootstrap_servers=address)
    assert "topic" in admin.list_topics()
    admin.close()


def test_one_line_names_settings_without_meaning(stock: BrokerProcess) -> None:
    [line] = [line for line in stock.log_text().splitlines() if "settings without effect here" in line]
    names = line.rpartition(": ")[2].split(", ")
    of_others = {"zookeeper.connect", "metric.reporters", "confluent.license.topic.replication.factor"}
    of_kafka_4 = {"controller.quorum.voters", "controller.quorum.bootstrap.servers"}
    assert set(names) >= of_others or set(names) & of_kafka_4, line
    assert stock.status()["bootstrap"].count(":") == stock.status()["bootstrap"].count("localhost:")


def test_settings_without_meaning_are_described_and_change_as_in_kafka(stock: BrokerProcess) -> None:
    """The value that was set is seen, and another is set, by librdkafka's admin client."""
    admin = AdminClient({"bootstrap.servers": stock.status()["bootstrap"]})
    [node] = admin.list_topics(timeout=deadline_s()).brokers
    name = "num.recovery.threads.per.data.dir"
    change = ConfigEntry(name, "2", incremental_operation=AlterConfigOpType.SET)
    asked = ConfigResource(ResourceType.BROKER, str(node), incremental_configs=[change])
    [altered] = admin.incremental_alter_configs([asked]).values()
    altered.result(deadline_s())
    [described] = admin.describe_configs([ConfigResource(ResourceType.BROKER, str(node))]).values()
    entries = described.result(deadline_s())
    assert (entries[name].value, entries[name].source) == ("2", ConfigSource.DYNAMIC_BROKER_CONFIG.value)
    assert entries["ssl.keystore.password"].value is None


@pytest.mark.parametrize(
    ("file", "environment", "complaint"),
    [
        ({**FILES["server.properties"], "listeners": "SSL://:9093"}, {}, "unknown listener PLAINTEXT; known: SSL"),
        ({}, {**ENVIRONMENTS["the image"], "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@a:1,2@b:1"}, "a cluster of its own"),
        ({"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}, {}, "StandardAuthorizer"),
    ],
)
def test_unsupported_configurations_of_kafka_stop_the_start(
    tmp_path: Path, file: dict[str, str], environment: dict[str, str], complaint: str
) -> None:
    broker = broker_of(tmp_path / "broker", file, environment)
    with pytest.raises(AssertionError) as failure:
        broker.start()
    assert "ended with exit status 2" in str(failure.value)
    assert complaint in str(failure.value)


def test_topics_are_not_deleted_where_that_is_switched_off_and_the_rack_is_described(tmp_path: Path) -> None:
    broker = broker_of(tmp_path / "broker", {"delete.topic.enable": "false", "broker.rack": "r1"}, {})
    broker.settings["listeners"] = "PLAINTEXT://127.0.0.1:0"
    broker.start()
    try:
        assert broker.command("topic", "create", "t").returncode == 0
        refused = broker.command("topic", "delete", "t")
        assert (refused.returncode, "TOPIC_DELETION_DISABLED" in refused.stderr) == (1, True), refused.stderr
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        assert [each["rack"] for each in admin.describe_cluster()["brokers"]] == ["r1"]
        admin.close()
    finally:
        broker.stop()
