"""Makes a data directory for `test_earlier_directories`: a broker of a checkout writes it, and it is packed.

    git worktree add /tmp/earlier COMMIT
    python -m tests.upgrade.make_directory /tmp/earlier NAME [KEY=VALUE ...]

NAME.zip then holds the data directory and `content.json`, which lists the records, committed offsets and settings that
were read from that broker. A part that the checkout does not support is left out, and printed.
"""

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests.support.broker_process import BrokerProcess
from tests.upgrade.content import DIRECTORIES, committed, records, topic_settings

TOPICS = {
    "orders": (2, {"retention.ms": "-1"}),
    "users": (1, {"cleanup.policy": "compact", "max.message.bytes": "500000"}),
}
WAIT_S = 20.0


def make(checkout: Path, name: str, settings: Sequence[str]) -> None:
    """Write DIRECTORIES/NAME.zip."""
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary) / "content"
        directory.mkdir()
        content = write(checkout, directory, dict(setting.split("=", 1) for setting in settings))
        (directory / "content.json").write_text(json.dumps(content, indent=1) + "\n")
        for path in directory.iterdir():
            if path.name not in {"data", "content.json"}:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.rmtree(directory / "data" / "request-log", ignore_errors=True)
        shutil.make_archive(str(DIRECTORIES / name), "zip", directory)


def write(checkout: Path, directory: Path, settings: Mapping[str, object]) -> dict[str, Any]:
    """Fill `directory`/data with the broker of a checkout, and return the content."""
    broker = broker_of(checkout, directory, settings).start()
    try:
        return _filled(broker.bootstrap)
    finally:
        broker.stop()


def broker_of(checkout: Path, directory: Path, settings: Mapping[str, object]) -> BrokerProcess:
    """Return a broker that runs the code of a checkout."""
    code = {"PYTHONPATH": str(checkout / "ops" / "package")}
    return BrokerProcess(directory, settings, ephemeral=False, environment=code)


def _filled(bootstrap: str) -> dict[str, Any]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = [NewTopic(topic, count, 1, config=configs) for topic, (count, configs) in TOPICS.items()]
    for done in admin.create_topics(new).values():
        done.result(WAIT_S)
    _produce(Producer({"bootstrap.servers": bootstrap}))
    for part in (_write_in_transactions, _commit_offsets, _set_broker_setting):
        _attempt(part, bootstrap)
    return {
        "records": {topic: records(bootstrap, topic, count) for topic, (count, _) in TOPICS.items()},
        "committed": _attempt(committed, bootstrap) or [],
        "settings": {topic: topic_settings(bootstrap, topic) for topic in TOPICS},
    }


def _attempt(part: Callable[[str], Any], bootstrap: str) -> Any:
    try:
        return part(bootstrap)
    except KafkaException as error:
        print(f"left out: {part.__name__}: {error}")
        return None


def _produce(producer: Producer) -> None:
    now_ms = int(time.time() * 1000)
    for number in range(30):
        producer.produce("orders", f"order-{number}", f"key-{number}", partition=number % 2, timestamp=now_ms)
        producer.produce("users", f"user-{number}", f"key-{number % 5}", timestamp=now_ms)
        producer.poll(0)
        if number % 6 == 5:
            producer.flush(WAIT_S)
    assert not producer.flush(WAIT_S)


def _write_in_transactions(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "writer"})
    producer.init_transactions(WAIT_S)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        _produce(producer)
        end(WAIT_S)


def _commit_offsets(bootstrap: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition("orders", 0, 7), TopicPartition("orders", 1, 9)], asynchronous=False)
    consumer.close()


def _set_broker_setting(bootstrap: str) -> None:
    entry = ConfigEntry("message.max.bytes", "900000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [done] = admin.incremental_alter_configs([resource]).values()
    done.result(WAIT_S)


if __name__ == "__main__":
    make(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
