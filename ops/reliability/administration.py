"""The administrator: creates and deletes topics, and changes settings and numbers of threads, during other attacks."""

from __future__ import annotations

import random
import time

from ops.reliability.attacks import Battlefield
from ops.reliability.wire import Wire
from rotunda.broker.protocol.api_keys import ApiKey

SET = 0
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
#: Name prefixes of topics that must not be deleted.
KEPT = ("campaign-", "__")
MOST_TOPICS = 12
#: Settings and the values to set; none of them can delete a record.
TOPIC_SETTINGS = {
    "segment.bytes": ("1048576", "4194304", "1073741824"),
    "segment.ms": ("5000", "60000", "604800000"),
    "flush.messages": ("1", "100", "9223372036854775807"),
    "compression.type": ("producer", "zstd", "uncompressed", "lz4"),
    "max.message.bytes": ("1048588", "2097152"),
    "index.interval.bytes": ("100", "4096"),
    "file.delete.delay.ms": ("1000", "60000"),
}
BROKER_SETTINGS = {
    "log.cleaner.backoff.ms": ("500", "1000", "5000"),
    "log.cleaner.min.cleanable.ratio": ("0.1", "0.5"),
    "log.segment.bytes": ("4194304", "1073741824"),
    "message.max.bytes": ("1048588", "2097152"),
}
#: The role that each setting counts.
ROLES = {"num.network.threads": "processor", "num.io.threads": "handler"}
MOST_THREADS = 4
FEWER, OTHER = "fewer processors", "more processors, or other handlers"
#: Processes that are removed first finish their pending requests.
LONGEST_SECONDS = 30.0
LOOK_SECONDS = 0.05


def change_topics(field: Battlefield, chance: random.Random) -> None:
    """Create a topic, or delete some: of its own, the fuzzers' and the poison's."""
    with Wire(field.broker.port) as wire:
        if chance.random() < 1 / 2:
            make_topic(field, chance, wire)
        else:
            delete_topics(field, wire)


def make_topic(field: Battlefield, chance: random.Random, wire: Wire) -> None:
    name = f"passing-{chance.randrange(MOST_TOPICS)}"
    wanted = {"name": name, "num_partitions": chance.randint(1, 9), "replication_factor": 1}
    with field.journal.window("topic made"):
        wire.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [wanted], "timeout_ms": 10_000})


def delete_topics(field: Battlefield, wire: Wire) -> None:
    topics = wire.ask(ApiKey.METADATA, 9, {"topics": None, "allow_auto_topic_creation": False}).topics
    others = [topic.name for topic in topics if not topic.name.startswith(KEPT)]
    if others:
        with field.journal.window("topics deleted", detail=f"{len(others)}"):
            wire.ask(ApiKey.DELETE_TOPICS, 6, {"topics": [{"name": name} for name in others], "timeout_ms": 10_000})
    groups = [each.group_id for each in wire.ask(ApiKey.LIST_GROUPS, 4, {}).groups]
    idle = [group for group in groups if not group.startswith(KEPT)]
    if idle:
        wire.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": idle})


def change_settings(field: Battlefield, chance: random.Random) -> None:
    """Change a setting of a topic that is in use, or of the broker."""
    with Wire(field.broker.port) as wire:
        topics = wire.ask(ApiKey.METADATA, 9, {"topics": None, "allow_auto_topic_creation": False}).topics
        names = [topic.name for topic in topics if topic.name.startswith("campaign-")]
        is_of_topic = names and chance.random() < 3 / 4
        settings = TOPIC_SETTINGS if is_of_topic else BROKER_SETTINGS
        name = chance.choice(sorted(settings))
        value, topic = chance.choice(settings[name]), chance.choice(names) if is_of_topic else ""
        with field.journal.window("setting changed", detail=f"{topic} {name}"):
            alter(field, wire, topic, name, value)


def change_threads(field: Battlefield, chance: random.Random) -> None:
    """Set the number of processors or of handlers to another valid one, as Kafka allows it."""
    name = chance.choice(sorted(ROLES))
    with Wire(field.broker.port) as wire:
        resource = {"resource_type": BROKER_RESOURCE, "resource_name": "1", "configuration_keys": [name]}
        described = wire.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource]})
        now = int(described.results[0].configs[0].value)
        number = chance.choice([n for n in range(max(1, now // 2), min(MOST_THREADS, 2 * now) + 1) if n != now])
        action = FEWER if ROLES[name] == "processor" and number < now else OTHER
        with field.journal.window(action, detail=f"{name} {now} -> {number}"):
            alter(field, wire, "", name, str(number))
            end = time.monotonic() + LONGEST_SECONDS
            while len(field.broker.processes()[ROLES[name]]) != number and time.monotonic() < end:
                if field.ended.wait(LOOK_SECONDS):
                    return


def alter(field: Battlefield, wire: Wire, topic: str, name: str, value: str) -> None:
    """Change a setting of a topic, or of the broker if none is named; a rejection is noted."""
    config = {"name": name, "config_operation": SET, "value": value}
    kind = TOPIC_RESOURCE if topic else BROKER_RESOURCE
    resource = {"resource_type": kind, "resource_name": topic, "configs": [config]}
    answer = wire.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
    for refused in answer.responses:
        if refused.error_code:
            field.journal.note("setting refused", detail=f"{name}: {refused.error_message}")
