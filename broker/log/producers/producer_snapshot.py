"""Producer state on disk: Kafka's `.snapshot` files, named by the offset up to which they hold the state.

    bytes        field                      per entry (46 bytes)
     0- 1        version (1)                producer id 8, epoch 2, last sequence 4, last offset 8, offset delta 4,
     2- 5        CRC-32C of byte 6 onward   timestamp 8, coordinator epoch 4, first offset of the open transaction 8
     6- 9        number of entries
    10-          entries
     then        our own tail, which Kafka's reader checks (CRC) and skips: `TAIL_MARK` and the older remembered
                 batches of every producer, 32 bytes each: producer id 8, last sequence 4, last offset 8,
                 offset delta 4, timestamp 8

Kafka forgets all but a producer's last batch across a restart; the tail keeps a retry of an older one from being
refused as out of order. A snapshot is written in one go under its own name: a torn one fails its CRC and the one
before it is used. Only the owner of the partition uses this module.
"""

import errno
import logging
import os
import struct
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from pathlib import Path

from broker.log.producers.producer_state import NO_SEQUENCE, PACKED_BATCH, ProducerEntry, ProducerState
from broker.log.segments.log_segment import IOV_MAX
from broker.log.segments.open_segments import OPEN_SEGMENTS
from broker.log.segments.segment_files import SNAPSHOT_SUFFIX, offsets_of, remove_if_there, segment_file
from broker.protocol.crc import crc32c
from broker.protocol.primitives import INT64

VERSION = 1
PREFIX = struct.Struct(
    ">h"  # version
    "I"  # CRC-32C of everything behind it
)
COUNT = struct.Struct(">i")
ENTRY = struct.Struct(
    ">q"  # producer id
    "h"  # epoch
    "16s"  # last sequence, last offset, offset delta: of a `PACKED_BATCH` all but its timestamp
    "q"  # timestamp
    "i"  # coordinator epoch
    "q"  # first offset of the open transaction, or -1
)
#: Of a `PACKED_BATCH`, where that begins which stands in an entry.
_IN_ENTRY = INT64.size
_pack_last = struct.Struct(
    ">q"  # producer id
    "16s"  # last sequence, last offset, offset delta
    "q"  # timestamp
).pack
_NO_BATCH = PACKED_BATCH.pack(0, NO_SEQUENCE, -1, 0, -1)
TAIL_MARK = b"RTB1"

#: So many entries are packed in one piece: what is touched of them, and what comes of that, stays in the caches.
_ENTRIES_AT_ONCE = 1024

_log = logging.getLogger(__name__)


class SnapshotCorruptError(ValueError):
    """A snapshot file that does not hold what it should."""


def encode(entries: Collection[ProducerEntry]) -> list[bytes]:
    """Return the content of a snapshot file in pieces. There may be 50,000 entries: with their batches, 8.7 MB."""
    pack_entry = ENTRY.pack
    rows, tail = [], []
    left = iter(entries)
    while some := list(islice(left, _ENTRIES_AT_ONCE)):
        packed = [
            pack_entry(
                entry.producer_id,
                entry.epoch,
                (entry.last or _NO_BATCH)[_IN_ENTRY:],
                entry.last_timestamp_ms,
                entry.coordinator_epoch,
                entry.current_txn_first_offset,
            )
            for entry in some
        ]
        rows.append(b"".join(packed))
        tail.append(b"".join([entry.older for entry in some]))
    pieces = [COUNT.pack(len(entries)), *rows]
    if any(tail):
        pieces += [TAIL_MARK, *tail]
    crc = 0
    for piece in pieces:
        crc = crc32c(piece, crc)
    return [PREFIX.pack(VERSION, crc), *pieces]


def decode(content: bytes) -> list[ProducerEntry]:
    """Return the entries of a snapshot file. Raises SnapshotCorruptError."""
    try:
        version, crc = PREFIX.unpack_from(content)
        if version != VERSION or crc32c(content[PREFIX.size :]) != crc:
            raise SnapshotCorruptError(f"version {version}, or the CRC does not match")
        (count,) = COUNT.unpack_from(content, PREFIX.size)
        rows_end = PREFIX.size + COUNT.size + count * ENTRY.size
        rows = list(ENTRY.iter_unpack(content[PREFIX.size + COUNT.size : rows_end]))
    except struct.error as error:
        raise SnapshotCorruptError(str(error)) from error
    if len(rows) != count:
        raise SnapshotCorruptError(f"{len(rows)} entries of {count}")
    return _with_older_batches([_entry(*row) for row in rows], content[rows_end:])


def _entry(
    producer_id: int,
    epoch: int,
    last_batch: bytes,
    timestamp_ms: int,
    coordinator_epoch: int,
    current_txn_first_offset: int,
) -> ProducerEntry:
    entry = ProducerEntry(producer_id)
    entry.epoch = epoch
    entry.coordinator_epoch = coordinator_epoch
    entry.last_timestamp_ms = timestamp_ms
    entry.current_txn_first_offset = current_txn_first_offset
    entry.restore(_pack_last(producer_id, last_batch, timestamp_ms))
    if entry.last_offset < 0:
        entry.restore(b"")
    return entry


def _with_older_batches(entries: list[ProducerEntry], tail: bytes) -> list[ProducerEntry]:
    if not tail.startswith(TAIL_MARK) or (len(tail) - len(TAIL_MARK)) % PACKED_BATCH.size:
        return entries
    by_id = {entry.producer_id: entry for entry in entries}
    for at in range(len(TAIL_MARK), len(tail), PACKED_BATCH.size):
        batch = tail[at : at + PACKED_BATCH.size]
        by_id[INT64.unpack_from(batch)[0]].older += batch
    return entries


class SnapshotFiles:
    """The snapshots of one partition directory. One is kept for every segment, and the newest two in any case."""

    __slots__ = ("directory", "offsets")

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.offsets = offsets_of(directory, SNAPSHOT_SUFFIX)

    def write(self, offset: int, content: Sequence[bytes]) -> None:
        """Write the snapshot of the state up to `offset`. Raises OSError."""
        fd = OPEN_SEGMENTS.open(self._path(offset), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            written = [os.writev(fd, content[at : at + IOV_MAX]) for at in range(0, len(content), IOV_MAX)]
            if sum(written) != sum(map(len, content)):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path(offset)))
        except OSError:
            # As on a full disk; half of a snapshot is none.
            self._remove(offset)
            raise
        finally:
            os.close(fd)
        if offset not in self.offsets:
            self.offsets = sorted([*self.offsets, offset])

    def load(self, end_offset: int) -> tuple[int | None, ProducerState]:
        """Return the newest state that holds nothing from `end_offset` on, and its offset; None if there is none.

        Snapshots beyond the end, and those that cannot be read, are removed.
        """
        while self.offsets:
            offset = self.offsets[-1]
            if offset <= end_offset:
                try:
                    return offset, ProducerState(decode(self._path(offset).read_bytes()))
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
        fd = os.open(self._path(self.offsets[-1]), os.O_RDONLY | os.O_CLOEXEC)
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
