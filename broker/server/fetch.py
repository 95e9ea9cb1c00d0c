"""Fetch: served by any handler, because offsets are published in shared memory and the bytes lie in files.

Runs in handler processes. A fetch that finds enough answers at once; another one is parked on the rows it watches and
tried again when an owner has moved one of their ends (``E06``). To a fetch of committed records the log ends at its
last stable offset. Records never pass through this process: the answer names ranges of segment files, unless they are
so short that reading them here is cheaper.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from broker.open_segments import SegmentFiles
from broker.protocol.error_codes import ErrorCode
from broker.protocol.headers import parse_header
from broker.protocol.messages.fetch import (
    FetchPart,
    FetchPartResponse,
    FetchRequest,
    FetchResponse,
    encode_fetch_response,
    parse_fetch,
)
from broker.request_channel import RANGE
from broker.server.delayed_operations import DelayedOperation, DelayedOperations
from broker.server.frame import Frame
from broker.server.request_facts import subject
from broker.server.response_writer import FileRange, ReplyTo, ResponseWriter, Told
from shm.partitions import STATE_OPEN

if TYPE_CHECKING:
    from broker.log.log_reader import FileSlice
    from broker.server.broker_state import BrokerState

#: Answers with at most this many bytes of records are read here and travel through the ring.
INLINE_RECORDS_BYTES = 16 * 1024

#: An answer whose own fields take more than this does not fit a ring; it is read here and travels by a file.
INLINE_ENVELOPE_BYTES = 64 * 1024

#: File ranges in one answer; partitions beyond it wait for the consumer's next fetch.
MAX_RANGES = 256

_READ_COMMITTED = 1


class Outcome(NamedTuple):
    """What one partition contributes to an answer."""

    response: FetchPartResponse
    found: FileSlice | None


class Answer(NamedTuple):
    """An answer as far as it can be given now."""

    outcomes: list[Outcome]
    records_bytes: int
    #: Offsets from those that were asked for to where the records end.
    record_count: int
    has_error: bool
    rows: list[int]
    #: (row, bytes of records) of the partitions that have some.
    sizes: list[tuple[int, int]]


class FetchPath:
    """Answers and parks fetches."""

    def __init__(
        self,
        state: BrokerState,
        responses: ResponseWriter,
        delayed: DelayedOperations,
        now_ns: Callable[[], int],
    ) -> None:
        self.parked = 0
        self._state = state
        self._current = state.heritage.current[state.index]
        self._responses = responses
        self._delayed = delayed
        self._now_ns = now_ns
        self._files = SegmentFiles()

    def take(self, frame: Frame) -> None:
        """Answer a fetch or park it. Raises InvalidReceive when it is malformed."""
        header = parse_header(frame.view, frame.start, frame.end)
        request = parse_fetch(frame.view, frame.api_version, header.body_offset, frame.end)
        version, correlation_id, to = frame.api_version, frame.correlation_id, frame.to
        if request.session_id != 0 and request.session_epoch > 0:
            # No session is ever handed out, so none can be gone on with; the client falls back to a full fetch.
            response = FetchResponse(0, int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND), 0, ())
            now_ns = self._now_ns()
            wire = encode_fetch_response(version, correlation_id, response)[0]
            self._responses.send(to, now_ns, now_ns, wire, Told(response.error_code, about=self._subject(request)))
            return
        answer = self._try_answer(request)
        local_ns = self._now_ns()
        topic = self._subject(request)
        if self._is_enough(request, answer) or request.max_wait_ms <= 0:
            self._send(to, (version, correlation_id, local_ns), answer, topic)
            return

        def try_complete(final: bool) -> bool:
            answer = self._try_answer(request)
            if final or self._is_enough(request, answer):
                self._send(to, (version, correlation_id, local_ns), answer, topic)
                return True
            return False

        def give_up() -> None:
            self._responses.close_connection(to, self._now_ns())

        self.parked += 1
        # From its arrival on: a replacement that reads it again does not let its client wait anew.
        attempt = self._current.during((to[1], to[2]), try_complete)
        deadline_ns = frame.received_ns + request.max_wait_ms * 1_000_000
        self._delayed.watch(DelayedOperation(attempt, deadline_ns, give_up, tuple(answer.rows)))

    def forget_removed_files(self) -> None:
        """Let go of segment files that have been deleted, so that their room on the disk is free again."""
        self._files.forget_removed()

    def _is_enough(self, request: FetchRequest, answer: Answer) -> bool:
        # As in Kafka, nobody waits for more than an answer may hold.
        wanted_bytes = min(request.min_bytes, request.max_bytes, self._state.metadata.broker_config.fetch_max_bytes)
        return answer.records_bytes >= wanted_bytes or answer.has_error or not answer.rows

    def _try_answer(self, request: FetchRequest) -> Answer:
        outcomes: list[Outcome] = []
        rows: list[int] = []
        sizes: list[tuple[int, int]] = []
        left_bytes = min(request.max_bytes, self._state.metadata.broker_config.fetch_max_bytes)
        total_bytes = record_count = ranges = 0
        has_error = False
        for part in request.parts:
            row = self._state.row_of(part.topic_name, part.topic_id, part.partition)
            allowed_bytes = min(left_bytes, part.partition_max_bytes) if ranges < MAX_RANGES else 0
            outcome = self._fetch_part(request, part, row, (allowed_bytes, total_bytes == 0))
            outcomes.append(outcome)
            has_error = has_error or outcome.response.error_code != 0
            if row >= 0:
                rows.append(row)
            size = outcome.response.records_size
            if size and outcome.found is not None:
                record_count += outcome.found.next_offset - part.fetch_offset
                total_bytes += size
                left_bytes -= size
                ranges += 1
                sizes.append((row, size))
        return Answer(outcomes, total_bytes, record_count, has_error, rows, sizes)

    def _fetch_part(self, request: FetchRequest, part: FetchPart, row: int, budget: tuple[int, bool]) -> Outcome:
        """Find the records of one partition. ``budget`` is (bytes allowed, whether the first batch may exceed them)."""
        refusal = self._refusal(part, row)
        if refusal:
            return _failure(part, refusal)
        partitions = self._state.partitions
        is_committed = request.isolation_level == _READ_COMMITTED
        while True:
            # In this order: whatever ended the transactions below the stable offset then lies below the end.
            stable_offset = partitions.read_stable(row)
            end = partitions.read_position(row)
            start_offset = partitions.read_start(row)
            offsets = (end[0], min(stable_offset, end[0]), start_offset)
            if not start_offset <= part.fetch_offset <= end[0]:
                return _failure(part, self._out_of_range(part, row), offsets)
            aborted: tuple[tuple[int, int], ...] | None = () if is_committed else None
            readable_offset = offsets[1] if is_committed else end[0]
            if part.fetch_offset >= readable_offset or (budget[0] <= 0 and not budget[1]):
                return Outcome(_response(part, offsets, 0, aborted), None)
            reader = self._state.reader(row, part.topic_name or self._name_of(part), part.partition)
            if is_committed:
                found, aborted = reader.locate_committed(
                    part.fetch_offset, readable_offset, end, budget[0], min_one_batch=budget[1]
                )
            else:
                found = reader.locate(part.fetch_offset, end, budget[0], min_one_batch=budget[1])
            # An end holds while its segment is appended to: once another has followed, compaction may replace it.
            if partitions.read_end(row) == end[0] or partitions.read_position(row)[1] == end[1]:
                break
        if found is None:
            return _failure(part, self._out_of_range(part, row), offsets)
        return Outcome(_response(part, offsets, found.length, aborted), found)

    def _refusal(self, part: FetchPart, row: int) -> int:
        """Return the error that ends the fetch of a partition before its offsets are looked at, or 0."""
        if row < 0:
            by_id = part.topic_name is None and self._state.metadata.topic_by_id(part.topic_id or b"") is None
            return int(ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self._state.partitions.state(row) != STATE_OPEN:
            # Its owner is about to open it, or could not; the consumer asks again.
            return int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        epoch = self._state.partitions.leader_epoch(row)
        if 0 <= part.current_leader_epoch < epoch:
            return int(ErrorCode.FENCED_LEADER_EPOCH)
        return int(ErrorCode.UNKNOWN_LEADER_EPOCH) if part.current_leader_epoch > epoch else 0

    def _out_of_range(self, part: FetchPart, row: int) -> int:
        """Return the error for an offset that is not there: a log that is being deleted does not reset its readers."""
        if self._state.is_behind:
            # The topic may be gone, and its row another partition's; the consumer asks again.
            return int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self._refusal(part, row) or int(ErrorCode.OFFSET_OUT_OF_RANGE)

    def _name_of(self, part: FetchPart) -> str:
        topic = self._state.metadata.topic_by_id(part.topic_id or b"")
        return topic.name if topic is not None else ""

    def _subject(self, request: FetchRequest) -> bytes:
        """Return what the request log is told of a request."""
        parts = request.parts
        row = self._state.row_of(parts[0].topic_name, parts[0].topic_id, parts[0].partition) if parts else -1
        return subject(row, len(parts), min_bytes=request.min_bytes, isolation_level=request.isolation_level)

    def _send(self, to: ReplyTo, about: tuple[int, int, int], answer: Answer, topic: bytes) -> None:
        version, correlation_id, local_ns = about
        errors = (outcome.response.error_code for outcome in answer.outcomes if outcome.response.error_code)
        told = Told(next(errors, 0), answer.record_count, topic)
        response = FetchResponse(0, 0, 0, [outcome.response for outcome in answer.outcomes])
        chunks = encode_fetch_response(version, correlation_id, response)
        for row, size in answer.sizes:
            self._state.partitions.count_fetched(row, self._state.index, size)
        complete_ns = self._now_ns()
        if answer.records_bytes <= INLINE_RECORDS_BYTES or _envelope_bytes(chunks, answer) > INLINE_ENVELOPE_BYTES:
            pieces = [chunks[0]]
            for outcome, chunk in zip(answer.outcomes, chunks[1:], strict=True):
                if outcome.found is not None and outcome.found.length:
                    pieces.append(self._read(outcome.found))
                pieces.append(chunk)
            self._responses.send(to, local_ns, complete_ns, b"".join(pieces), told)
            return
        ranges: list[FileRange] = []
        inline_before = len(chunks[0])
        for outcome, chunk in zip(answer.outcomes, chunks[1:], strict=True):
            found = outcome.found
            if found is not None and found.length:
                path = os.fsdecode(found.path)
                ranges.append(FileRange(inline_before, path, found.inode, found.position, found.length))
                inline_before = 0
            inline_before += len(chunk)
        self._responses.send_ranges(to, (local_ns, complete_ns), b"".join(chunks), ranges, told)

    def _read(self, found: FileSlice) -> bytes:
        file = self._files.open(os.fsdecode(found.path), found.inode)
        return os.pread(file.fd, found.length, found.position)


def _envelope_bytes(chunks: list[bytes], answer: Answer) -> int:
    """Return the size of an answer in its ring if its records stay in their files."""
    ranges = sum(RANGE.size + len(outcome.found.path) for outcome in answer.outcomes if outcome.found is not None)
    return ranges + sum(map(len, chunks))


def _response(
    part: FetchPart, offsets: tuple[int, int, int], size: int, aborted: tuple[tuple[int, int], ...] | None
) -> FetchPartResponse:
    return FetchPartResponse(
        part.topic_name, part.topic_id, part.partition, 0, *offsets, size, aborted_transactions=aborted
    )


def _failure(part: FetchPart, error: int, offsets: tuple[int, int, int] = (-1, -1, -1)) -> Outcome:
    return Outcome(FetchPartResponse(part.topic_name, part.topic_id, part.partition, error, *offsets, 0), None)
