"""The committed lag: the distance from a committed offset to the end of its partition, at one instant.

Runs in handler processes, for the snapshot and the lags of groups. Read the committed offset before calling this
module: the log ends are then newer, and no lag is negative.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rotunda.shm.tables.partitions import STATE_OPEN

if TYPE_CHECKING:
    from rotunda.broker.log.log_reader import End
    from rotunda.broker.metadata.metadata_cache import MetadataCache
    from rotunda.shm.tables.partitions import PartitionTable


class CommittedLag(NamedTuple):
    """The offsets of a partition at one instant. ``oldest`` is the first unread offset, None if unknown."""

    row: int
    start: int
    stable: int
    end: End
    oldest: int | None

    @property
    def records(self) -> int | None:
        """The number of unread offsets; None if unknown."""
        return None if self.oldest is None else self.end[0] - self.oldest

    @property
    def committed_records(self) -> int | None:
        """The number of unread offsets below the last stable offset; None if unknown."""
        return None if self.oldest is None else max(0, self.stable - self.oldest)


def committed_lag(
    metadata: MetadataCache, partitions: PartitionTable, topic: str, partition: int, offset: int
) -> CommittedLag | None:
    """Return the lag of a committed offset; None if the partition does not exist or is not open."""
    info = metadata.partition(topic, partition)
    if info is None or partitions.state(info.row) != STATE_OPEN:
        return None
    # Read in this order: the stable offset is then at or below the end, and both are newer than the commit.
    stable = partitions.read_stable(info.row)
    end = partitions.read_position(info.row)
    start = partitions.read_start(info.row)
    # An offset beyond the end: the topic was recreated or truncated; its consumer restarts from an unknown offset.
    oldest = max(offset, start) if offset <= end[0] else None
    return CommittedLag(info.row, start, min(stable, end[0]), end, oldest)
