"""Reading partitions for fetches: where their records lie, or which error answers for them.

Runs in handler processes. Any handler reads any partition: its offsets are published in the partition table and its
records are found in the files (`log_reader`). To a fetch of committed records the log ends at its last stable offset.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING, Final

from broker.log.log_reader import FileSlice
from broker.partitions.fetch.fetch_shape import FORBIDDEN, NAMED_TWICE
from broker.partitions.fetch.pending_fetch import PendingFetch
from broker.protocol.error_codes import ErrorCode
from broker.protocol.messages.fetch import FetchPart, FetchPartResponse, PlainParts
from broker.server_log.log_setup import RepeatedWarnings
from shm.tables.partitions import STATE_OPEN

if TYPE_CHECKING:
    from collections.abc import Collection

    from broker.partitions.partition_manager import PartitionManager

logger = logging.getLogger(__name__)

_NO_OFFSETS: Final = (-1, -1, -1)
_NOTHING: Final = FileSlice(b"", 0, 0, 0, 0)


class FetchReader:
    """Reads the partitions of `PendingFetch`es."""

    def __init__(self, partitions: PartitionManager) -> None:
        self._partitions = partitions
        self._metadata = partitions.metadata
        self._table = partitions.table
        self._warnings = RepeatedWarnings(logger, partitions.clock.monotonic_ns)
        #: By version and whether committed records are asked for.
        self.plain_parts = cache(lambda version, committed: PlainParts(version, committed=committed))

    def read(self, fetch: PendingFetch, start: int, stop: int) -> None:
        """Read the partitions in [start, stop) of its parts, which follow those read before. HOT.

        Most have nothing, which a few words of the partition table show.
        """
        shape = fetch.shape
        if len(shape.fields) < stop:
            shape.look_up(self._metadata, stop)
        read_fetched = self._table.read_fetched
        encode_empty, answered, is_committed = fetch.terms.plain.encode_empty, fetch.answered, fetch.terms.is_committed
        parts, fields, offsets = fetch.parts, shape.fields, fetch.offsets
        for index in range(start, stop):
            row, partition, epoch = fields[index]
            is_served = False
            if row >= 0:
                offset = offsets[index]
                state, leader_epoch, stable, end, log_start = read_fetched(row)
                is_served = state == STATE_OPEN and (epoch == leader_epoch or epoch < 0)
                is_at_end = offset == end or (is_committed and stable <= offset < end)
                if is_at_end and is_served and log_start <= offset:
                    stable = min(stable, end)
                    if answered is None:
                        parts.append(encode_empty(partition, end, stable, log_start))
                    else:
                        parts.append(fetch.empty(index, end, stable, log_start))
                    continue
            parts.append(b"")
            self._read_part(fetch, index, row, is_served)

    def read_again(self, fetch: PendingFetch, index: int) -> None:
        """Read one partition anew, wherever it is now."""
        fetch.forget(index)
        name, topic_id, partition, epoch, _, _, _, _ = fetch.shape.parts[index]
        is_forbidden = fetch.shape.fields[index][0] == FORBIDDEN
        row = FORBIDDEN if is_forbidden else self._partitions.row_of(name, topic_id, partition)
        is_served = False
        if row >= 0:
            offset = fetch.offsets[index]
            state, leader_epoch, stable, end, start = self._table.read_fetched(row)
            is_served = state == STATE_OPEN and (epoch == leader_epoch or epoch < 0)
            if offset == end and is_served and start <= offset and not fetch.terms.is_committed:
                fetch.parts[index] = fetch.empty(index, end, min(stable, end), start)
                return
        self._read_part(fetch, index, row, is_served)

    def read_moved(self, fetch: PendingFetch) -> set[int]:
        """Read the partitions anew whose rows have moved, and return the indices of their parts."""
        moved, rows = set(fetch.moved), fetch.rows
        fetch.moved.clear()
        again = {rows[row] for row in moved}
        if NAMED_TWICE in again:
            again = set(range(len(fetch.parts)))
        self.read_in_order(fetch, again)
        return again

    def read_in_order(self, fetch: PendingFetch, indices: Collection[int]) -> None:
        """Read some partitions anew, so that those which come first have the limits to themselves."""
        for index in indices:
            fetch.forget(index)
        for index in sorted(indices):
            self.read_again(fetch, index)

    def refuse(self, fetch: PendingFetch, index: int) -> None:
        """Answer for a partition whose files go while they are looked for: its consumer asks again."""
        fetch.forget(index)
        fetch.put(index, _failure(fetch.part(index), int(ErrorCode.NOT_LEADER_OR_FOLLOWER)), -1, None)

    def _read_part(self, fetch: PendingFetch, index: int, row: int, is_served: bool) -> None:
        """Find the records of one partition. Files that cannot be read are an error of that partition alone.

        ``is_served``: its row says so, and nothing has to be refused before its offsets are looked at.
        """
        try:
            if is_served or not self._is_refused(fetch, index, row):
                self._find(fetch, index, row)
        except OSError as error:
            part = fetch.part(index)
            name = f"{part.topic_name or self._name_of(part.topic_id)}-{part.partition}"
            self._warnings.warning(name, "%s cannot be read: %s", name, error)
            fetch.put(index, _failure(part, int(ErrorCode.KAFKA_STORAGE_ERROR)), row, None)

    def _is_refused(self, fetch: PendingFetch, index: int, row: int) -> bool:
        """Answer for one partition that is not to be read; False if it is."""
        part = fetch.part(index)
        refusal = self._refusal(part, row)
        if row == FORBIDDEN and fetch.terms.session.is_faulty:
            refusal = fetch.terms.session.error_of(part.topic_name or self._name_of(part.topic_id)) or refusal
        if refusal:
            fetch.put(index, _failure(part, refusal), row, None)
        return bool(refusal)

    def _find(self, fetch: PendingFetch, index: int, row: int) -> None:
        """Find the records of one partition. Raises OSError. HOT."""
        name, topic_id, partition, _, _, _, _, max_bytes = fetch.shape.parts[index]
        fetch_offset = fetch.offsets[index]
        terms = fetch.terms
        table, is_committed = self._table, terms.is_committed
        allowed_bytes, min_one_batch = fetch.budget(max_bytes)
        while True:
            # Whatever ended the transactions below the stable offset lies below the end.
            stable_offset, end, start_offset = table.read_log(row)
            end_offset = end[0]
            offsets = (end_offset, min(end_offset, stable_offset), start_offset)
            if not start_offset <= fetch_offset <= end_offset:
                self._put_out_of_range(fetch, index, row, end_offset)
                return
            readable_offset = offsets[1] if is_committed else end_offset
            if fetch_offset >= readable_offset or (allowed_bytes <= 0 and not min_one_batch):
                if fetch_offset < readable_offset:
                    fetch.is_cut = True
                    fetch.uncounted[index] = terms.wanted_bytes
                fetch.put_plain(index, offsets, row, _NOTHING)
                return
            reader = self._partitions.reader(row, self._name_of(topic_id) if name is None else name, partition)
            aborted: tuple[tuple[int, int], ...] = ()
            found: FileSlice | None
            if is_committed:
                found, aborted = reader.locate_committed(
                    fetch_offset, readable_offset, end, allowed_bytes, min_one_batch=min_one_batch
                )
            else:
                found = reader.locate(fetch_offset, end, allowed_bytes, min_one_batch=min_one_batch)
            # An end holds while its segment is appended to: once another has followed, compaction may replace it.
            if table.read_end(row) == end_offset or table.read_position(row)[1] == end[1]:
                break
        if found is None:
            self._put_out_of_range(fetch, index, row, end_offset)
        elif aborted:
            part = fetch.part(index)
            fetch.put(index, _response(part, offsets, found.length, aborted), row, found)
        else:
            fetch.is_cut |= not found.length
            fetch.put_plain(index, offsets, row, found)
        if found is not None and fetch.records_bytes < terms.wanted_bytes:
            fetch.count_cut(index, found, allowed_bytes, (readable_offset, end[1]))

    def _put_out_of_range(self, fetch: PendingFetch, index: int, row: int, end_offset: int) -> None:
        """Answer for an offset that is not there, or whose file is not."""
        part = fetch.part(index)
        error = self._out_of_range(part, row)
        is_there = self._table.read_start(row) <= part.fetch_offset <= end_offset
        if error == ErrorCode.OFFSET_OUT_OF_RANGE and is_there:
            # The offset is there, its file is not: whoever goes elsewhere for it would lose what lies between.
            error = int(ErrorCode.KAFKA_STORAGE_ERROR)
        fetch.put(index, _failure(part, error), row, None)

    def _refusal(self, part: FetchPart, row: int) -> int:
        """Return the error that ends the fetch of a partition before its offsets are looked at, or 0."""
        if row == FORBIDDEN:
            return int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if row < 0:
            by_id = part.topic_name is None and self._metadata.topic_by_id(part.topic_id or b"") is None
            return int(ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self._table.state(row) != STATE_OPEN:
            # Its owner is about to open it, or could not; the consumer asks again.
            return int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        epoch = self._table.leader_epoch(row)
        if 0 <= part.current_leader_epoch < epoch:
            return int(ErrorCode.FENCED_LEADER_EPOCH)
        return int(ErrorCode.UNKNOWN_LEADER_EPOCH) if part.current_leader_epoch > epoch else 0

    def _out_of_range(self, part: FetchPart, row: int) -> int:
        """Return the error for an offset that is not there: a log that is being deleted does not reset its readers."""
        if self._partitions.is_behind:
            # The topic may be gone, and its row another partition's; the consumer asks again.
            return int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self._refusal(part, row) or int(ErrorCode.OFFSET_OUT_OF_RANGE)

    def _name_of(self, topic_id: bytes | None) -> str:
        topic = self._metadata.topic_by_id(topic_id or b"")
        return topic.name if topic is not None else ""


def _response(
    part: FetchPart, offsets: tuple[int, int, int], size: int, aborted: tuple[tuple[int, int], ...]
) -> FetchPartResponse:
    return FetchPartResponse(part.partition, 0, *offsets, size, aborted_transactions=aborted)


def _failure(part: FetchPart, error: int) -> FetchPartResponse:
    """Return the error of a partition, without offsets as in Kafka."""
    return FetchPartResponse(part.partition, error, *_NO_OFFSETS, 0)
