"""The leader epochs of a partition: the start offset of each (KIP-101, KIP-279, KIP-320).

Kafka's `leader-epoch-checkpoint` file. The owner starts a new epoch every time the broker starts; a replacement of a
handler continues the epoch in the file. Readers serve OffsetForLeaderEpoch and ListOffsets from the file.
"""

import logging
import os
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

from rotunda.broker.log.checkpoints import CheckpointCorruptError, read_lines, write_lines
from rotunda.broker.log.segments.segment_files import LOG_SUFFIX, segment_file
from rotunda.broker.log.segments.segment_scan import scan_headers

FILE_NAME = "leader-epoch-checkpoint"

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1

_log = logging.getLogger(__name__)


class LeaderEpochs:
    """(epoch, start offset) pairs, both strictly ascending. `is_stored`: the file is up to date."""

    __slots__ = ("entries", "is_stored")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self.entries: list[tuple[int, int]] = entries or []
        self.is_stored = True

    @property
    def latest(self) -> int:
        """The newest epoch, or -1."""
        return self.entries[-1][0] if self.entries else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Start `epoch` at `start_offset` and remove entries that contradict it. Return whether anything changed."""
        if self.entries and self.entries[-1][0] == epoch and self.entries[-1][1] <= start_offset:
            return False
        kept = [entry for entry in self.entries if entry[0] < epoch and entry[1] < start_offset]
        self.entries = [*kept, (epoch, start_offset)]
        return True

    def cut_end(self, end_offset: int) -> bool:
        """Remove the epochs that begin at `end_offset` or later. Return whether anything changed."""
        kept = [entry for entry in self.entries if entry[1] < end_offset]
        changed = len(kept) != len(self.entries)
        self.entries = kept
        return changed

    def cut_start(self, start_offset: int) -> bool:
        """Remove the epochs that end at or before `start_offset`. Return whether anything changed."""
        covering = [entry for entry in self.entries if entry[1] <= start_offset]
        if not covering or covering[-1][1] == start_offset == self.entries[0][1]:
            return False
        self.entries = [(covering[-1][0], start_offset), *self.entries[len(covering) :]]
        return True

    def epoch_for_offset(self, offset: int) -> int:
        """Return the epoch that wrote `offset`, or -1 if it lies before the first."""
        index = bisect_right(self.entries, offset, key=lambda entry: entry[1])
        return self.entries[index - 1][0] if index else UNDEFINED_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (the largest known epoch <= `epoch`, its end offset), as Kafka's OffsetForLeaderEpoch does.

        (-1, -1) for an epoch that is undefined or newer than all; for one older than all, that epoch and the start
        offset of the oldest.
        """
        if epoch == UNDEFINED_EPOCH or epoch > self.latest:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        index = bisect_right(self.entries, epoch, key=lambda entry: entry[0])
        return (self.entries[index - 1][0] if index else epoch), self.entries[index][1]


def read_epochs(directory: Path) -> LeaderEpochs:
    """Return the epochs of a partition directory; none if the file is missing. Raises CheckpointCorruptError."""
    path = directory / FILE_NAME
    entries: list[tuple[int, int]] = []
    for line in read_lines(path):
        try:
            epoch, start_offset = map(int, line.split())
        except ValueError as error:
            raise CheckpointCorruptError(f"{path}: malformed line {line!r}") from error
        last_epoch, last_start = entries[-1] if entries else (UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if epoch <= last_epoch or start_offset <= last_start:
            raise CheckpointCorruptError(f"{path}: {line!r} does not follow {last_epoch} {last_start}")
        entries.append((epoch, start_offset))
    return LeaderEpochs(entries)


def write_epochs(directory: Path, epochs: LeaderEpochs, *, durable: bool = True) -> None:
    """Replace the epochs of a partition directory. Raises OSError."""
    epochs.is_stored = False
    lines = [f"{epoch} {start_offset}" for epoch, start_offset in epochs.entries]
    write_lines(directory / FILE_NAME, lines, durable=durable)
    epochs.is_stored = True


def resume_epochs(
    directory: Path,
    seen: Sequence[tuple[int, int]],
    end_offset: int,
    bases: Sequence[int],
    *,
    least_epoch: int | None,
) -> LeaderEpochs:
    """Return the epochs of a log that is opened with its end at `end_offset`; its next batch writes them.

    `seen` are (epoch, first offset) of batches in the log, to complete the file; `bases` are the base offsets of its
    segments. A new epoch begins, or `least_epoch` continues if it is set. A damaged or missing file is rebuilt from the
    batches, and written at once.
    """
    path = directory / FILE_NAME
    is_stale = False
    try:
        epochs = read_epochs(directory)
        if not epochs.entries and bases and end_offset > bases[0]:
            raise CheckpointCorruptError(f"{path} is missing or empty")
    except CheckpointCorruptError as error:
        _log.warning("Rebuilding the leader epochs from the batches: %s", error)
        epochs, is_stale = _epochs_of_batches(directory, bases), True
    for epoch, start_offset in seen:
        if epoch > epochs.latest:
            is_stale = epochs.assign(epoch, start_offset)
    latest = epochs.latest + 1 if least_epoch is None else max(epochs.latest, least_epoch, 0)
    epochs.cut_end(end_offset)
    epochs.assign(latest, end_offset)
    if is_stale:
        try:
            write_epochs(directory, epochs, durable=False)
        except OSError as error:
            _log.warning("%s cannot be written: %s", path, error)
    return epochs


def _epochs_of_batches(directory: Path, bases: Sequence[int]) -> LeaderEpochs:
    """Read the epochs from the batches of a log, by scanning all of them."""
    epochs = LeaderEpochs()
    for base_offset in bases:
        fd = os.open(segment_file(directory, base_offset, LOG_SUFFIX), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            for _, header in scan_headers(fd, 0, os.fstat(fd).st_size):
                if header.leader_epoch > epochs.latest:
                    epochs.assign(header.leader_epoch, header.base_offset)
        finally:
            os.close(fd)
    return epochs
