"""A topic's partition directories as another program may read them: its id, and the offsets that are safe to read.

Runs in the driver and reads files alone, beside a running broker or without one. Records are safe below the high
watermark, of the caller or of the broker's last checkpoint (every minute and at a stop), because a broker may truncate
later ones. Of these, records are decided below the last stable offset, computed as the broker does when it opens a log.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from rotunda.broker.log.checkpoints import (
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    CheckpointCorruptError,
    read_offsets,
)
from rotunda.broker.log.leader_epochs import LeaderEpochs, read_epochs
from rotunda.broker.log.partition_metadata import read_topic_id
from rotunda.broker.log.producers.producer_snapshot import SnapshotCorruptError, decode
from rotunda.broker.log.producers.producer_state import ProducerState
from rotunda.broker.log.segments.segment_files import LOG_SUFFIX, SNAPSHOT_SUFFIX, offsets_of, read_file, segment_file
from rotunda.broker.log.segments.segment_scan import scan_markers
from rotunda.broker.log.segments.segment_walk import SegmentWalk
from rotunda.spark.failures import JobFailed


class Bounds(NamedTuple):
    """The log start offset of a partition and its high watermark."""

    start: int
    high_watermark: int


class Span(NamedTuple):
    """Offsets [start, stop) of a partition to read, with the limits that hold for the whole partition.

    `stop` <= `stable` <= `high_watermark`.
    """

    partition: int
    directory: str
    start: int
    stop: int
    stable: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class TopicPartition:
    """A partition's directory; records in [start, stable) are readable."""

    partition: int
    directory: Path
    start: int
    stable: int
    high_watermark: int
    epochs: LeaderEpochs

    def spans(self, start: int) -> list[Span]:
        """Return the readable records from an offset on, one span for each segment."""
        start = max(start, self.start)
        bases = [base for base in offsets_of(self.directory, LOG_SUFFIX) if start < base < self.stable]
        edges = [start, *bases, self.stable]
        return [
            Span(self.partition, str(self.directory), *pair, self.stable, self.high_watermark)
            for pair in pairwise(edges)
            if pair[0] < pair[1]
        ]


@dataclass(frozen=True, slots=True)
class TopicLog:
    """The partitions of a topic, in order, and the topic's id in Kafka's text form."""

    topic: str
    topic_id: str
    partitions: list[TopicPartition]


def open_topic(data_dir: Path, topic: str, given: Mapping[int, Bounds]) -> TopicLog:
    """Return the log of a topic; partitions without given bounds have those of the last checkpoint.

    Raises JobFailed for an unknown topic or unreadable checkpoints, and FileNotFoundError when the topic is deleted
    meanwhile.
    """
    directories = directories_of(data_dir, topic)
    ids = {read_topic_id(directory) for directory in directories.values()}
    if len(ids) != 1 or None in ids:
        raise JobFailed(f"directories {topic}-N in {data_dir} have not all the same topic id: is it being deleted?")
    try:
        starts, ends = (read_offsets(data_dir / name) for name in (LOG_START_OFFSET_FILE, HIGH_WATERMARK_FILE))
        epochs = {partition: read_epochs(directory) for partition, directory in directories.items()}
    except CheckpointCorruptError as error:
        raise JobFailed(f"unreadable checkpoint: {error}; start the broker once, which repairs it") from error
    partitions = []
    for partition, directory in sorted(directories.items()):
        key = topic, partition
        bounds = given.get(partition, Bounds(starts.get(key, 0), ends.get(key, 0)))
        start = max(bounds.start, next(iter(offsets_of(directory, LOG_SUFFIX)), 0))
        stable = max(start, _stable_end(directory, bounds.high_watermark))
        high_watermark = max(start, bounds.high_watermark)
        of_partition = start, min(stable, high_watermark), high_watermark, epochs[partition]
        partitions.append(TopicPartition(partition, directory, *of_partition))
    topic_id = base64.urlsafe_b64encode(ids.pop() or b"").decode().rstrip("=")
    return TopicLog(topic, topic_id, partitions)


def directories_of(data_dir: Path, topic: str) -> dict[int, Path]:
    """Return the directory of each partition. Raises JobFailed for an unknown topic."""
    pattern = re.compile(rf"{re.escape(topic)}-(\d+)")
    try:
        names = os.listdir(data_dir)
    except OSError as error:
        raise JobFailed(f"{data_dir} cannot be read: {error.strerror}") from error
    found = {int(each[1]): data_dir / name for name in names if (each := pattern.fullmatch(name))}
    if not found:
        raise JobFailed(f"no topic {topic} in {data_dir}; --data-dir names the broker's data directory")
    return found


def _stable_end(directory: Path, high_watermark: int) -> int:
    """Return the last stable offset of a log that ends at its high watermark."""
    from_offset, producers = _snapshot(directory, high_watermark)
    bases = [base for base in offsets_of(directory, LOG_SUFFIX) if base < high_watermark]
    for number, base in enumerate(bases):
        if number + 1 == len(bases) or bases[number + 1] > from_offset:
            _replay(directory, base, producers, from_offset, high_watermark)
    return producers.stable_end(high_watermark)


def _snapshot(directory: Path, high_watermark: int) -> tuple[int, ProducerState]:
    """Return the newest readable producer snapshot at or below an offset."""
    for offset in reversed(offsets_of(directory, SNAPSHOT_SUFFIX)):
        if offset <= high_watermark:
            try:
                return offset, ProducerState(decode(read_file(segment_file(directory, offset, SNAPSHOT_SUFFIX))))
            except (SnapshotCorruptError, FileNotFoundError):
                continue
    return 0, ProducerState()


def _replay(directory: Path, base: int, producers: ProducerState, start: int, stop: int) -> None:
    """Replay the batches of a segment with offsets in [start, stop)."""
    fd = os.open(segment_file(directory, base, LOG_SUFFIX), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        size_bytes = os.fstat(fd).st_size
        position = SegmentWalk(directory, base, fd, size_bytes).position_of(start) if start > base else 0
        for header, marker in scan_markers(fd, position, size_bytes):
            if header[0] >= stop:
                return
            if header[0] >= start:
                producers.replay(header, marker)
    finally:
        os.close(fd)
