"""The schedule of producer snapshots: when the owner of a partition writes and deletes them.

A snapshot is due at every roll, and when a scan of the batches since the last one would need about 10 ms. A snapshot
that cannot be written costs a longer scan after a crash and nothing else. The scan of opening or restoring the log
counts: its batches follow the same snapshot.
"""

import logging
from pathlib import Path

from rotunda.broker.log.producers.producer_snapshot import SnapshotFiles, encode
from rotunda.broker.log.producers.producer_state import ProducerState

#: A snapshot is due when a scan of the later batches would cost as much as reading this many bytes: about 10 ms, for
#: few large batches or many small ones.
SNAPSHOT_INTERVAL_BYTES = 64 * 1024 * 1024

#: Scanning one batch, and unpacking its producer, costs about as much as reading this many bytes: so 4,096 at most.
WALK_BYTES_PER_BATCH = 16 * 1024
#: The end of a transaction costs this much more: so 2,048 of them at most.
WALK_BYTES_MORE_PER_MARKER = 16 * 1024

#: Packing one producer into a snapshot costs about as much as reading this many bytes.
PACK_BYTES_PER_PRODUCER = 2 * 1024

#: A scan of this length or more, of 256 batches, must not be repeated by the next owner of the log.
LONG_WALK_BYTES = SNAPSHOT_INTERVAL_BYTES // 16

_log = logging.getLogger(__name__)


class SnapshotSchedule:
    """The schedule of one partition."""

    __slots__ = ("_directory", "files", "left_bytes")

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.files = SnapshotFiles(directory)
        #: Remaining scan cost until a snapshot is due, at 0. Counted down by the log with every commit: HOT.
        self.left_bytes = SNAPSHOT_INTERVAL_BYTES

    def reset(self) -> None:
        """Reset the count: the newest snapshot is loaded, and the scan after it is counted."""
        self.left_bytes = SNAPSHOT_INTERVAL_BYTES

    def opened(self, offset: int, producers: ProducerState, segment_bases: list[int]) -> None:
        """Write a snapshot if opening the log needed a long scan, and a snapshot costs less or is due.

        It is written before any request is served: the first commits of very many logs may fall into one turn.
        """
        walked_bytes = SNAPSHOT_INTERVAL_BYTES - self.left_bytes
        if self.left_bytes <= 0 or walked_bytes >= max(LONG_WALK_BYTES, len(producers) * PACK_BYTES_PER_PRODUCER):
            self.write(offset, producers, segment_bases)

    def write(self, offset: int, producers: ProducerState, segment_bases: list[int]) -> None:
        """Write a snapshot of the state at `offset`, and delete unneeded ones. Errors are logged."""
        self.left_bytes = SNAPSHOT_INTERVAL_BYTES
        try:
            self.files.write(offset, encode(producers))
            self.files.sweep(segment_bases)
        except OSError as error:
            _log.warning("%s: no producer snapshot at %d: %s", self._directory, offset, error)

    def sweep(self, segment_bases: list[int]) -> None:
        """Delete unneeded snapshots. Errors are logged."""
        try:
            self.files.sweep(segment_bases)
        except OSError as error:
            _log.warning("%s: cannot remove an old producer snapshot: %s", self._directory, error)

    def note_rolls(self, segment_bases: list[int]) -> None:
        """Reset the count: a roll has written its own snapshot. Raises OSError."""
        self.left_bytes = SNAPSHOT_INTERVAL_BYTES
        self.files.sweep(segment_bases)
