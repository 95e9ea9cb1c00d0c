"""`ops/Dockerfile`: what it says, and its steps followed where there is no Docker (`tests.support.image`).

Not shown here: that the images which it names can be had, and Docker itself.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from tests.support.deadline import wait_until
from tests.support.image import Container, Stage, build, instructions, may_run

REPOSITORY = Path(__file__).parents[2]
DOCKERFILE = REPOSITORY / "ops/Dockerfile"
DEADLINE_SECONDS = 60

needs_namespaces = pytest.mark.skipif(not may_run(), reason="namespaces of mounts and processes take root")


def test_the_image_has_a_user_a_volume_and_a_check_of_its_health() -> None:
    """And takes nothing from the checkout but what it is made from."""
    found = list(instructions(DOCKERFILE))
    last = found[max(place for place, (word, _) in enumerate(found) if word == "FROM") :]
    said = dict(last)
    assert (said["USER"], said["VOLUME"], said["EXPOSE"]) == ("rotunda", "/data", "9092")
    assert json.loads(said["HEALTHCHECK"].partition("CMD ")[2])[:2] == ["rotunda", "status"]
    assert json.loads(said["ENTRYPOINT"]) == ["rotunda"]
    # What runs after it is not root's, and nothing is copied in but what an earlier stage has made.
    assert [rest for word, rest in last if word in ("COPY", "ADD")] == ["--from=build /opt/rotunda /opt/rotunda"]
    kept = (REPOSITORY / "ops/Dockerfile.dockerignore").read_text().splitlines()
    assert "*" in kept
    assert all((REPOSITORY / line[1:]).exists() for line in kept if line.startswith("!"))
    # Both stages, and the environment that everything is tested in, have the same Python; the first has a compiler.
    images = [rest.split(" AS ")[0] for word, rest in found if word == "FROM"]
    assert images == ["python:3.11-bookworm", "python:3.11-slim-bookworm"]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return build(DOCKERFILE, REPOSITORY, tmp_path_factory.mktemp("image"))


@pytest.fixture
def container(image: Stage) -> Iterator[tuple[Container, str]]:
    """Yield a container, and its ready line."""
    running = Container(
        image,
        ("start", "--listen", "0.0.0.0:0"),
        KAFKA_ADVERTISED_LISTENERS="PLAINTEXT://localhost:0",
        ROTUNDA_STATUS_PORT="0",
        KAFKA_NUM_PARTITIONS="3",
    )
    try:
        yield running, running.line()
    finally:
        running.close()


@needs_namespaces
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_container_serves_with_a_read_only_root_and_64_mib_of_shared_memory(container: tuple[Container, str]) -> None:
    """Its first process is the broker, its user has no rights, and the check of its health says how it is."""
    running, ready = container
    found = re.search(r"bootstrap=(\S+)", ready)
    assert found is not None, ready
    assert "data_dir=/data/log" in ready
    bootstrap = {"bootstrap.servers": found[1]}
    producer = Producer(bootstrap)
    producer.produce("orders", b"three apples")
    assert producer.flush(DEADLINE_SECONDS) == 0
    consumer = Consumer({**bootstrap, "group.id": "image", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    [message] = consumer.consume(1, DEADLINE_SECONDS)
    consumer.close()
    assert message.value() == b"three apples"
    topics = AdminClient(bootstrap).list_topics("orders", DEADLINE_SECONDS).topics
    assert len(topics["orders"].partitions) == 3  # by KAFKA_NUM_PARTITIONS
    check = running.stage.health
    assert running.inside(*check).returncode == 0
    status = json.loads(running.inside("rotunda", "status", "--json").stdout)
    assert (status["pid"], status["state"]) == (1, "ready")
    assert running.inside("sh", "-c", "id -u; echo x >/x || echo x >/opt/rotunda/x || echo x >/tmp/x").returncode
    assert running.inside("sh", "-c", "df --output=size -B1 /dev/shm | tail -n 1").stdout.split() == [str(64 << 20)]
    assert running.inside("sh", "-c", "kill -TERM 1").returncode == 0
    wait_until(lambda: running.process.poll() is not None, "the container has ended")
    assert running.process.returncode == 0
