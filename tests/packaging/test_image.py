"""`ops/image/Dockerfile`: its instructions, and its steps followed without Docker (`tests.support.image`).

Not tested here: that its base images are available, and Docker itself.
"""

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from tests.support.deadline import deadline_s, wait_until
from tests.support.image import Container, Stage, build, instructions, may_run
from tests.support.sampling import Sampling

REPOSITORY = Path(__file__).parents[2]
DOCKERFILE = REPOSITORY / "ops/image/Dockerfile"

needs_namespaces = pytest.mark.skipif(not may_run(), reason="namespaces of mounts and processes take root")


def test_the_image_has_a_user_a_volume_and_a_check_of_its_health() -> None:
    found = list(instructions(DOCKERFILE))
    last = found[max(place for place, (word, _) in enumerate(found) if word == "FROM") :]
    said = dict(last)
    assert (said["USER"], said["VOLUME"], said["EXPOSE"]) == ("rotunda", "/data", "9092")
    assert json.loads(said["HEALTHCHECK"].partition("CMD ")[2])[:2] == ["rotunda", "status"]
    # Any other command may replace it, as in Kafka's images.
    assert (said.get("ENTRYPOINT"), json.loads(said["CMD"])) == (None, ["rotunda", "start"])
    # Later programs do not run as root, and only start scripts and the output of an earlier stage are copied in.
    copied = [rest for word, rest in last if word in ("COPY", "ADD")]
    assert copied == ["--from=build /opt/rotunda /opt/rotunda", "etc /etc"]
    # Both stages, and the environment that everything is tested in, have the same Python; the first has a compiler.
    images = [rest.split(" AS ")[0] for word, rest in found if word == "FROM"]
    assert images == ["python:3.11-bookworm", "python:3.11-slim-bookworm"]


@pytest.fixture(scope="module")
def image(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """Return the image of the output of `ops/build`."""
    return build(dist / "image/Dockerfile", dist / "image", tmp_path_factory.mktemp("image"))


@pytest.fixture
def container(image: Stage) -> Iterator[Container]:
    """Yield a container."""
    running = Container(
        image,
        ("rotunda", "start", "--listen", "0.0.0.0:0"),
        KAFKA_ADVERTISED_LISTENERS="PLAINTEXT://localhost:0",
        ROTUNDA_STATUS_PORT="0",
        KAFKA_NUM_PARTITIONS="3",
    )
    try:
        yield running
    finally:
        running.close()


def produce_and_consume(address: str) -> None:
    producer = Producer({"bootstrap.servers": address})
    producer.produce("orders", b"three apples")
    assert producer.flush(deadline_s()) == 0
    consumer = Consumer({"bootstrap.servers": address, "group.id": "image", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    [message] = consumer.consume(1, deadline_s())
    consumer.close()
    assert message.value() == b"three apples"


@needs_namespaces
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_container_serves_with_a_read_only_root_and_64_mib_of_shared_memory(container: Container) -> None:
    """Its first process is the broker, its user has no rights, and the health check reports its state."""
    address = container.wait_for(r"bootstrap=(\S+).* data_dir=/data/log ")[1]
    produce_and_consume(address)
    topics = AdminClient({"bootstrap.servers": address}).list_topics("orders", deadline_s()).topics
    assert len(topics["orders"].partitions) == 3  # by KAFKA_NUM_PARTITIONS
    check = container.stage.health
    assert container.inside(*check).returncode == 0
    status = json.loads(container.inside("rotunda", "status", "--json").stdout)
    assert (status["pid"], status["state"]) == (1, "ready")
    assert container.inside("sh", "-c", "id -u; echo x >/x || echo x >/opt/rotunda/x || echo x >/tmp/x").returncode
    assert container.inside("sh", "-c", "df --output=size -B1 /dev/shm | tail -n 1").stdout.split() == [str(64 << 20)]
    assert container.inside("sh", "-c", "kill -TERM 1").returncode == 0
    wait_until(lambda: container.process.poll() is not None, "the container has ended")
    assert container.process.returncode == 0


#: As testcontainers' modules set it for one node, but with free ports: a container here has this machine's network.
ENVIRONMENT = {
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:0,BROKER://0.0.0.0:0,CONTROLLER://0.0.0.0:9094",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_NODE_ID": "1",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9094",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "9223372036854775807",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "ROTUNDA_STATUS_PORT": "0",
}
RUNNING = "Transitioning from RECOVERY to RUNNING"
ADVERTISED = "PLAINTEXT://localhost:0,BROKER://localhost:0"
#: By module: the shell of its command, its start script, and the line that it waits for.
SEQUENCES = {
    # org.testcontainers.kafka.KafkaContainer, and for .NET the builder for apache/kafka
    "java": ("", f"#!/bin/bash\nexport KAFKA_ADVERTISED_LISTENERS={ADVERTISED}\n/etc/kafka/docker/run \n", RUNNING),
    # org.testcontainers.kafka.ConfluentKafkaContainer, and @testcontainers/kafka
    "node": ("", f"#!/bin/bash\nexport KAFKA_ADVERTISED_LISTENERS={ADVERTISED}\n/etc/confluent/docker/run \n", RUNNING),
    "go": (
        "bash",
        textwrap.dedent(f"""\
            #!/bin/bash
            source /etc/confluent/docker/bash-config
            export KAFKA_ADVERTISED_LISTENERS={ADVERTISED}
            echo Starting Kafka KRaft mode
            sed -i '/KAFKA_ZOOKEEPER_CONNECT/d' /etc/confluent/docker/configure
            echo 'kafka-storage format --ignore-formatted' >> /etc/confluent/docker/configure
            echo '' > /etc/confluent/docker/ensure
            /etc/confluent/docker/configure
            /etc/confluent/docker/launch"""),
        RUNNING,
    ),
    "python": (
        "sh",
        textwrap.dedent(f"""\
            #!/bin/bash
            sed -i '/KAFKA_ZOOKEEPER_CONNECT/d' /etc/confluent/docker/configure
            echo 'kafka-storage format --ignore-formatted' >> /etc/confluent/docker/configure
            export KAFKA_ADVERTISED_LISTENERS={ADVERTISED}
            . /etc/confluent/docker/bash-config
            /etc/confluent/docker/configure
            /etc/confluent/docker/launch"""),
        "Kafka Server started",
    ),
}


@needs_namespaces
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_testcontainers_starts_it_in_place_of_an_image_of_kafka(image: Stage, sampling: Sampling) -> None:
    """A module starts a container that waits for a script, copies the script there, and reads the output."""
    for module in sampling.some(2, list(SEQUENCES)):
        start_by_script(image, module)


def start_by_script(image: Stage, module: str) -> None:
    shell, script, started = SEQUENCES[module]
    path = f"/tmp/{module}_start.sh"  # noqa: S108 - of the container
    waits = f"while [ ! -f {path} ]; do sleep 0.1; done; {shell} {path}"
    own = {"ROTUNDA_DATA_DIR": f"/data/{module}", "ROTUNDA_RUN_DIR": f"/data/{module}-run"}
    container = Container(image, ("sh", "-c", waits), **ENVIRONMENT, **own)
    try:
        copied = image.root / f"tmp/{module}.part"
        copied.write_text(script)
        copied.chmod(0o777)
        copied.rename(image.root / path.lstrip("/"))
        line = container.wait_for(started).string
        produce_and_consume(line.partition(" serves ")[2].partition(",")[0])
    finally:
        container.close()
