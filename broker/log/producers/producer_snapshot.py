"""Producer state on disk: Kafka's `.snapshot` files, named by the offset up to which they hold the state.

    bytes        field
     0- 1        version (1)
     2- 5        CRC-32C of byte 6 onward
     6- 9        number of entries
    10-          entries: the rows of `packed_producers`
     then        our own tail, which Kafka's reader checks (CRC) and skips: `TAIL_MARK`, for every entry the number of
                 cached older batches, a byte each, and these batches, each as `PACKED_BATCH`

Kafka forgets all but a producer's last batch across a restart; the tail prevents the rejection of a retry of an older
one as out of order. A snapshot is written under its final name: a torn one fails its CRC and the one before it is used.
Only the owner of the partition uses this module.
"""

import errno
import logging
import os
import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from rotunda.broker.log.producers.packed_producers import ROW_BYTES, PackedProducers
from rotunda.broker.log.producers.producer_entry import PACKED_BATCH
from rotunda.broker.log.producers.producer_state import ProducerState
from rotunda.broker.log.segments.log_segment import IOV_MAX
from rotunda.broker.log.segments.open_segments import OPEN_SEGMENTS
from rotunda.broker.log.segments.segment_files import (
    SNAPSHOT_SUFFIX,
    offsets_in,
    read_file,
    remove_if_there,
    segment_file,
)
from rotunda.broker.records.crc import crc32c

VERSION = 1
PREFIX = struct.Struct(
    ">h"  # version
    "I"  # CRC-32C of the rest of the file
)
COUNT = struct.Struct(">i")
TAIL_MARK = b"RTB2"

#: An older format of the tail: each batch with its producer's id before it, without counts.
_TAIL_WITH_IDS = b"RTB1"
_BATCH_WITH_ID = struct.Struct(f">q{PACKED_BATCH.size}s")

#: Entries packed at a time: small enough that inputs and outputs stay in the CPU caches.
_ENTRIES_AT_ONCE = 1024

_log = logging.getLogger(__name__)


class SnapshotCorruptError(ValueError):
    """A snapshot file is corrupt."""


def encode(producers: ProducerState) -> list[bytes]:
    """Return the content of a snapshot file in parts. With 50,000 producers and their batches it has 7.2 MB."""
    rows, older, batches = [], [], []
    for piece in producers.pack(_ENTRIES_AT_ONCE):
        rows.append(piece[0])
        older.append(piece[1])
        batches.append(piece[2])
    pieces = [COUNT.pack(len(producers)), *rows]
    if any(batches):
        pieces += [TAIL_MARK, *older, *batches]
    crc = 0
    for each in pieces:
        crc = crc32c(each, crc)
    return [PREFIX.pack(VERSION, crc), *pieces]


def decode(content: bytes) -> PackedProducers:
    """Return the producers of a snapshot file. Raises SnapshotCorruptError."""
    view = memoryview(content)
    try:
        version, crc = PREFIX.unpack_from(content)
        if version != VERSION or crc32c(view[PREFIX.size :]) != crc:
            raise SnapshotCorruptError(f"version {version}, or the CRC does not match")
        (count,) = COUNT.unpack_from(content, PREFIX.size)
    except struct.error as error:
        raise SnapshotCorruptError(str(error)) from error
    rows_at = PREFIX.size + COUNT.size
    rows = content[rows_at : rows_at + max(count, 0) * ROW_BYTES]
    if len(rows) != count * ROW_BYTES:
        raise SnapshotCorruptError(f"{len(rows) // ROW_BYTES} entries of {count}")
    producers = PackedProducers(rows, *_older_batches(rows, view[rows_at + len(rows) :]))
    if len(producers.numbers) != count:
        raise SnapshotCorruptError(f"{count} entries of {len(producers.numbers)} producers")
    return producers


def _older_batches(rows: bytes, tail: memoryview) -> tuple[bytes, memoryview]:
    """Return the number of older batches of each producer, and these batches; none if the tail has another format."""
    count = len(rows) // ROW_BYTES
    mark, older, batches = tail[: len(TAIL_MARK)], tail[len(TAIL_MARK) :][:count], tail[len(TAIL_MARK) + count :]
    if mark == TAIL_MARK and len(older) == count and len(batches) == sum(older) * PACKED_BATCH.size:
        return bytes(older), batches
    with_ids = tail[len(_TAIL_WITH_IDS) :]
    if mark == _TAIL_WITH_IDS and not len(with_ids) % _BATCH_WITH_ID.size:
        # The batches of one producer are contiguous, and producers are in the order of their entries.
        owned = list(_BATCH_WITH_ID.iter_unpack(with_ids))
        counted = Counter([producer_id for producer_id, _ in owned])
        ids = PackedProducers(rows, bytes(count), memoryview(b"")).numbers
        return bytes([counted[producer_id] for producer_id in ids]), memoryview(b"".join([batch for _, batch in owned]))
    return bytes(count), memoryview(b"")


class SnapshotFiles:
    """The snapshots of one partition directory: one for every segment, and the newest two in any case."""

    __slots__ = ("directory", "offsets")

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.offsets = offsets_in(os.listdir(directory), SNAPSHOT_SUFFIX)

    def write(self, offset: int, content: Sequence[bytes]) -> None:
        """Write the snapshot of the state up to `offset`. Raises OSError."""
        fd = OPEN_SEGMENTS.open(self._path(offset), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            written = [os.writev(fd, content[at : at + IOV_MAX]) for at in range(0, len(content), IOV_MAX)]
            if sum(written) != sum(map(len, content)):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path(offset)))
        except OSError:
            # As on a full disk; a partial snapshot is useless.
            self._remove(offset)
            raise
        finally:
            os.close(fd)
        if offset not in self.offsets:
            self.offsets = sorted([*self.offsets, offset])

    def load(self, end_offset: int) -> tuple[int | None, ProducerState]:
        """Return the offset of the newest snapshot at or below `end_offset`, and its state; None if there is none.

        Snapshots beyond the end, and unreadable ones, are removed.
        """
        while self.offsets:
            offset = self.offsets[-1]
            if offset <= end_offset:
                try:
                    return offset, ProducerState(decode(read_file(self._path(offset))))
                except (SnapshotCorruptError, FileNotFoundError) as error:
                    _log.warning("Removing producer snapshot %s: %s", self._path(offset), error)
            self._remove(offset)
        return None, ProducerState()

    def sweep(self, segment_bases: Iterable[int]) -> None:
        """Remove the snapshots that neither begin a segment nor are among the newest two."""
        keep = {*segment_bases, *self.offsets[-2:]}
        for offset in [offset for offset in self.offsets if offset not in keep]:
            self._remove(offset)

    def remove_before(self, offset: int) -> None:
        """Remove the snapshots below `offset`, all but the newest one."""
        for old in [old for old in self.offsets[:-1] if old < offset]:
            self._remove(old)

    def sync_newest(self) -> None:
        """Make the newest snapshot durable, if there is one."""
        if not self.offsets:
            return
        fd = os.open(self._path(self.offsets[-1]), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def _path(self, offset: int) -> Path:
        return segment_file(self.directory, offset, SNAPSHOT_SUFFIX)

    def _remove(self, offset: int) -> None:
        remove_if_there(self._path(offset))
        if offset in self.offsets:
            self.offsets.remove(offset)
