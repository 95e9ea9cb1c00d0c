"""The committed lag: the distance of a committed offset from the end of its partition, as of one instant.

Runs in handler processes, for the snapshot and the lags of groups. What was committed must have been taken before it is
asked about: the ends are then newer, and no lag is negative.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rotunda.shm.tables.partitions import STATE_OPEN

if TYPE_CHECKING:
    from rotunda.broker.log.log_reader import End
    from rotunda.broker.metadata.metadata_cache import MetadataCache
    from rotunda.shm.tables.partitions import PartitionTable


class CommittedLag(NamedTuple):
    """A partition as it stands. ``oldest`` is the first offset that is unread, None if nobody can know it."""

    row: int
    start: int
    stable: int
    end: End
    oldest: int | None

    @property
    def records(self) -> int | None:
        """How many offsets are unread; None if that cannot be known."""
        return None if self.oldest is None else self.end[0] - self.oldest

    @property
    def committed_records(self) -> int | None:
        """The same up to the last stable offset."""
        return None if self.oldest is None else max(0, self.stable - self.oldest)


def committed_lag(
    metadata: MetadataCache, partitions: PartitionTable, topic: str, partition: int, offset: int
) -> CommittedLag | None:
    """Return how far a committed offset is from the end; None if the partition is not there or not served."""
    info = metadata.partition(topic, partition)
    if info is None or partitions.state(info.row) != STATE_OPEN:
        return None
    # In this order: the stable offset is then at or below the end, and neither is older than what was committed.
    stable = partitions.read_stable(info.row)
    end = partitions.read_position(info.row)
    start = partitions.read_start(info.row)
    # Beyond the end: the topic was made anew or cut, its consumer will start over, nobody knows where.
    oldest = max(offset, start) if offset <= end[0] else None
    return CommittedLag(info.row, start, min(stable, end[0]), end, oldest)
