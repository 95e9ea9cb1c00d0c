"""The clean offsets: the offset up to which each partition has been compacted, in memory and in two files.

Runs in the cleaner process. A later topic of the same name must not inherit an offset, even if a process was dead when
the earlier topic was deleted: so each offset is stored with the id of its topic. The offsets are in a file with Kafka's
format and name, which has no field for ids; the ids are in a second file. The offsets are written first, and the ids
only after a success: so the id of a topic is never stored with an offset of an earlier topic.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
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
    """The offset up to which a partition of the topic with this id has been compacted."""

    topic_id: bytes
    offset: int


class CleanOffsets:
    """The offsets of all partitions, from this cleaner and its predecessors."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._offsets = _read(data_dir)

    def of(self, key: TopicPartition, topic_id: bytes) -> int | None:
        """Return the clean offset of a partition, or None if it was never compacted."""
        found = self._offsets.get(key)
        return found.offset if found is not None and found.topic_id == topic_id else None

    def begin(self, key: TopicPartition, topic_id: bytes, offset: int) -> None:
        """Record the first compaction of a partition before it removes any record. Raises OSError.

        Readers of the file know by its entry that offsets of the partition may be missing.
        """
        if self.of(key, topic_id) is None:
            offsets = {**self._offsets, key: CleanOffset(topic_id, offset)}
            self._store(offsets)
            self._offsets = offsets

    def put(self, key: TopicPartition, topic_id: bytes, offset: int) -> None:
        """Record the clean offset of a partition."""
        self._offsets[key] = CleanOffset(topic_id, offset)
        self._write()

    def forget(self, keys: Collection[TopicPartition]) -> None:
        """Remove deleted partitions."""
        remaining = {key: found for key, found in self._offsets.items() if key not in keys}
        if len(remaining) < len(self._offsets):
            self._offsets = remaining
            self._write()

    def _write(self) -> None:
        try:
            self._store(self._offsets)
        except OSError as error:
            logger.warning("No cleaner checkpoint in %s: %s", self._data_dir, error)

    def _store(self, offsets: Mapping[TopicPartition, CleanOffset]) -> None:
        write_offsets(self._data_dir / CLEANER_FILE, {key: each.offset for key, each in offsets.items()})
        ids = [f"{name} {index} {each.topic_id.hex()}" for (name, index), each in sorted(offsets.items())]
        write_lines(self._data_dir / TOPIC_IDS_FILE, ids)


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
