"""The schedule of producer snapshots: when the owner of a partition writes one, and which it keeps.

A snapshot is due whenever walking what was written since would take about 10 ms, and at every roll. That one cannot
be written costs a longer walk after a crash and nothing else. What has been walked when the log was opened, or
restored, counts: it stands behind the same snapshot still.
"""

import logging
from pathlib import Path

from rotunda.broker.log.producers.producer_snapshot import SnapshotFiles, encode
from rotunda.broker.log.producers.producer_state import ProducerState

#: Producer state is put on disk when walking what was written since would cost as much as reading this many bytes:
#: about 10 ms, be they few large batches or many small ones.
SNAPSHOT_INTERVAL_BYTES = 64 * 1024 * 1024

#: Walking over one batch, and unpacking its producer, costs about as much as reading this many bytes: so 4,096 at most.
WALK_BYTES_PER_BATCH = 16 * 1024
#: The end of a transaction costs this much more: so 2,048 of them at most.
WALK_BYTES_MORE_PER_MARKER = 16 * 1024

#: Packing one producer into a snapshot costs about as much as reading this many bytes.
PACK_BYTES_PER_PRODUCER = 2 * 1024

#: A walk of this length or more, of 256 batches, is not to be made again by whoever takes the log over next.
LONG_WALK_BYTES = SNAPSHOT_INTERVAL_BYTES // 16

_log = logging.getLogger(__name__)


class SnapshotSchedule:
    """One partition's."""

    __slots__ = ("_directory", "files", "left_bytes")

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.files = SnapshotFiles(directory)
        #: How much walking is left until a snapshot is due, at 0. Counted down by the log with every commit: HOT.
        self.left_bytes = SNAPSHOT_INTERVAL_BYTES

    def begin_anew(self) -> None:
        """Count anew: the newest snapshot is loaded, and what is walked behind it is counted off."""
        self.left_bytes = SNAPSHOT_INTERVAL_BYTES

    def opened(self, offset: int, producers: ProducerState, segment_bases: list[int]) -> None:
        """Put the state on disk if opening the log took a long walk, and a snapshot takes less, or is due.

        It is taken before anybody is served: the first commits of very many logs may fall into one turn.
        """
        walked_bytes = SNAPSHOT_INTERVAL_BYTES - self.left_bytes
        if self.left_bytes <= 0 or walked_bytes >= max(LONG_WALK_BYTES, len(producers) * PACK_BYTES_PER_PRODUCER):
            self.take(offset, producers, segment_bases)

    def take(self, offset: int, producers: ProducerState, segment_bases: list[int]) -> None:
        """Put the state as of `offset` on disk if that is possible, and drop snapshots that nobody needs."""
        self.left_bytes = SNAPSHOT_INTERVAL_BYTES
        try:
            self.files.write(offset, encode(producers))
            self.files.sweep(segment_bases)
        except OSError as error:
            _log.warning("%s: no producer snapshot at %d: %s", self._directory, offset, error)

    def sweep(self, segment_bases: list[int]) -> None:
        """Drop snapshots that nobody needs if that is possible."""
        try:
            self.files.sweep(segment_bases)
        except OSError as error:
            _log.warning("%s: an old producer snapshot stays: %s", self._directory, error)

    def note_rolls(self, segment_bases: list[int]) -> None:
        """Count anew: a roll has written its own snapshot. Raises OSError."""
        self.left_bytes = SNAPSHOT_INTERVAL_BYTES
        self.files.sweep(segment_bases)
