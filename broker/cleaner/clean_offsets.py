"""The clean offsets: how far each partition has been compacted, in memory and in two files of the data directory.

Runs in the cleaner process. A later topic of the same name must not inherit an offset, whichever process was dead when
the one before it was deleted: so each is kept with the id of its topic. The offsets stand in a file of Kafka's form and
name, which has no room for ids; those stand in a file beside it. The offsets are written first, and the ids only if
that went well: what goes with the id of a topic is then never an offset of a topic before it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, Final, NamedTuple

from rotunda.broker.log.checkpoints import (
    CLEANER_FILE,
    CheckpointCorruptError,
    read_lines,
    read_offsets,
    write_lines,
    write_offsets,
)

if TYPE_CHECKING:
    from pathlib import Path

TOPIC_IDS_FILE: Final = "cleaner-topic-ids"

logger = logging.getLogger(__name__)

TopicPartition = tuple[str, int]


class CleanOffset(NamedTuple):
    """How far a partition of the topic with this id has been compacted."""

    topic_id: bytes
    offset: int


class CleanOffsets:
    """The offsets that this cleaner and those before it have reached."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._offsets = _read(data_dir)

    def of(self, key: TopicPartition, topic_id: bytes) -> int | None:
        """Return how far a partition has been compacted, or None if it never was."""
        found = self._offsets.get(key)
        return found.offset if found is not None and found.topic_id == topic_id else None

    def put(self, key: TopicPartition, topic_id: bytes, offset: int) -> None:
        """Take note of how far a partition has been compacted."""
        self._offsets[key] = CleanOffset(topic_id, offset)
        self._write()

    def forget(self, keys: Collection[TopicPartition]) -> None:
        """Forget partitions that have been deleted."""
        remaining = {key: found for key, found in self._offsets.items() if key not in keys}
        if len(remaining) < len(self._offsets):
            self._offsets = remaining
            self._write()

    def _write(self) -> None:
        try:
            write_offsets(self._data_dir / CLEANER_FILE, {key: each.offset for key, each in self._offsets.items()})
            ids = [f"{name} {index} {each.topic_id.hex()}" for (name, index), each in sorted(self._offsets.items())]
            write_lines(self._data_dir / TOPIC_IDS_FILE, ids)
        except OSError as error:
            logger.warning("No cleaner checkpoint in %s: %s", self._data_dir, error)


def _read(data_dir: Path) -> dict[TopicPartition, CleanOffset]:
    try:
        ids = _read_topic_ids(data_dir / TOPIC_IDS_FILE)
        offsets = read_offsets(data_dir / CLEANER_FILE)
    except CheckpointCorruptError as error:
        logger.warning("Ignoring a checkpoint: %s", error)
        return {}
    return {key: CleanOffset(ids[key], offset) for key, offset in offsets.items() if key in ids}


def _read_topic_ids(path: Path) -> dict[TopicPartition, bytes]:
    """Return the topic id of each partition. Raises CheckpointCorruptError."""
    ids = {}
    for line in read_lines(path):
        try:
            topic, partition, topic_id = line.split()
            ids[topic, int(partition)] = bytes.fromhex(topic_id)
        except ValueError as error:
            raise CheckpointCorruptError(f"{path}: malformed line {line!r}") from error
    return ids
