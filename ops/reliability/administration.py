"""The administrator: creates topics, deletes them and the fuzzer's, and changes settings, during other attacks."""

from __future__ import annotations

import random

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


class Topics:
    """Creates topics, and deletes its own, the fuzzer's and the poison's."""

    def __init__(self, field: Battlefield, chance: random.Random) -> None:
        self._field, self._chance = field, chance

    def __call__(self) -> None:
        with Wire(self._field.broker.port) as wire:
            if self._chance.random() < 1 / 2:
                self._make(wire)
            else:
                self._delete(wire)

    def _make(self, wire: Wire) -> None:
        name = f"passing-{self._chance.randrange(MOST_TOPICS)}"
        wanted = {"name": name, "num_partitions": self._chance.randint(1, 9), "replication_factor": 1}
        with self._field.journal.window("topic made"):
            wire.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [wanted], "timeout_ms": 10_000})

    def _delete(self, wire: Wire) -> None:
        topics = wire.ask(ApiKey.METADATA, 9, {"topics": None, "allow_auto_topic_creation": False}).topics
        others = [topic.name for topic in topics if not topic.name.startswith(KEPT)]
        if others:
            with self._field.journal.window("topics deleted", detail=f"{len(others)}"):
                wire.ask(ApiKey.DELETE_TOPICS, 6, {"topics": [{"name": name} for name in others], "timeout_ms": 10_000})
        groups = [each.group_id for each in wire.ask(ApiKey.LIST_GROUPS, 4, {}).groups]
        idle = [group for group in groups if not group.startswith(KEPT)]
        if idle:
            wire.ask(ApiKey.DELETE_GROUPS, 2, {"groups_names": idle})


class Settings:
    """Changes a setting of a topic that is in use, or of the broker."""

    def __init__(self, field: Battlefield, chance: random.Random) -> None:
        self._field, self._chance = field, chance

    def __call__(self) -> None:
        with Wire(self._field.broker.port) as wire:
            topics = wire.ask(ApiKey.METADATA, 9, {"topics": None, "allow_auto_topic_creation": False}).topics
            names = [topic.name for topic in topics if topic.name.startswith("campaign-")]
            is_of_topic = names and self._chance.random() < 3 / 4
            settings = TOPIC_SETTINGS if is_of_topic else BROKER_SETTINGS
            name = self._chance.choice(sorted(settings))
            config = {"name": name, "config_operation": SET, "value": self._chance.choice(settings[name])}
            resource = {
                "resource_type": TOPIC_RESOURCE if is_of_topic else BROKER_RESOURCE,
                "resource_name": self._chance.choice(names) if is_of_topic else "",
                "configs": [config],
            }
            with self._field.journal.window("setting changed", detail=f"{resource['resource_name']} {name}"):
                answer = wire.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
        for refused in answer.responses:
            if refused.error_code:
                self._field.journal.note("setting refused", detail=f"{name}: {refused.error_message}")
