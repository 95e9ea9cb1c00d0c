"""The recovery of producer state, and of the index of aborted transactions, when a log is opened.

Runs in the owner, after the files are repaired. The state is the newest snapshot at or below the end, plus a scan of
the later batches, so it covers exactly the remaining batches. Only that scan finds the start of an aborted transaction;
where markers may lack their entries, it starts early enough to write them again.
"""

import os
from pathlib import Path

from rotunda.broker.log.indexes.offset_index import OffsetIndex
from rotunda.broker.log.indexes.transaction_index import AbortedTransaction, TransactionIndex
from rotunda.broker.log.producers.producer_state import ProducerState
from rotunda.broker.log.producers.snapshot_schedule import (
    WALK_BYTES_MORE_PER_MARKER,
    WALK_BYTES_PER_BATCH,
    SnapshotSchedule,
)
from rotunda.broker.log.recovery import LoadedFiles, SegmentInfo
from rotunda.broker.log.segments.segment_files import LOG_SUFFIX, segment_file
from rotunda.broker.log.segments.segment_scan import scan_markers


def load_producers(directory: Path, files: LoadedFiles, snapshots: SnapshotSchedule) -> ProducerState:
    """Return the producer state of exactly the batches below `files.end_offset`. Raises OSError.

    The scan is counted in `snapshots`, so that scans do not grow when logs are reopened before a snapshot is due.
    """
    snapshot_offset, producers = snapshots.files.load(files.unindexed_from)
    from_offset = -1 if snapshot_offset is None else snapshot_offset
    infos = [*files.rolled, SegmentInfo(files.active.base_offset, files.active.position)]
    for number, info in enumerate(infos):
        end_offset = infos[number + 1].base_offset if number + 1 < len(infos) else files.end_offset
        if end_offset > from_offset and info.size_bytes:
            aborted, walk_bytes = _replay_segment(directory, info, from_offset, producers)
            snapshots.left_bytes -= walk_bytes
            if end_offset > files.unindexed_from:
                is_active = info.base_offset == files.active.base_offset
                index = files.active.transaction_index if is_active else TransactionIndex(directory, info.base_offset)
                _complete(index, files.unindexed_from, aborted)
    return producers


def _replay_segment(
    directory: Path, info: SegmentInfo, from_offset: int, producers: ProducerState
) -> tuple[list[AbortedTransaction], int]:
    """Replay the batches of a segment from an offset on.

    Return the transactions that its markers aborted, and the cost of the scan (see `SNAPSHOT_INTERVAL_BYTES`).
    """
    aborted = []
    batches = markers = 0
    index = OffsetIndex(directory, info.base_offset, writable=False)
    fd = os.open(segment_file(directory, info.base_offset, LOG_SUFFIX), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        start = index.lookup(from_offset)
        written_ms = os.fstat(fd).st_mtime_ns // 1_000_000
        for header, marker in scan_markers(fd, start, info.size_bytes):
            if header[0] >= from_offset:
                batches += 1
                markers += marker is not None
                ended = producers.replay(header, marker, written_ms)
                if ended is not None:
                    aborted.append(ended)
    finally:
        index.file.close()
        os.close(fd)
    walk_bytes = batches * WALK_BYTES_PER_BATCH + markers * WALK_BYTES_MORE_PER_MARKER
    return aborted, info.size_bytes - start + walk_bytes


def _complete(index: TransactionIndex, from_offset: int, aborted: list[AbortedTransaction]) -> None:
    """Rewrite the entries of the markers from an offset on. Raises OSError."""
    try:
        index.repair(from_offset)
        for entry in aborted:
            if entry.last_offset >= from_offset:
                index.stage(entry)
        index.file.write_pending()
        index.sync()
        if not index.file.entries:
            index.remove_file()
    finally:
        index.file.close()
