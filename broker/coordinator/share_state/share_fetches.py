"""The share fetches of one handler: acknowledges, acquires and sends records, or waits for some.

Runs in the handler that owns the state of the groups. Acknowledgements in a request are applied first, and its response
waits for their commit. A fetch that finds too few bytes is parked on the rows of its session's partitions (``E06``); it
is tried again when one of them moves or when another member gives records back. Quotas are checked before records are
acquired: a throttled consumer gets an empty response, and holds nothing that it has not received.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from rotunda.broker.config.offset_reset import ResetStrategy
from rotunda.broker.coordinator.share_state.acquisition import Found, Readable, ShareLog, SharePartition, ShareReader
from rotunda.broker.coordinator.share_state.records import NOT_RESOLVED, SharePlace
from rotunda.broker.coordinator.share_state.share_consumers import acknowledged_in, named_in
from rotunda.broker.errors import ApiError
from rotunda.broker.ipc.request_facts import MOST_COUNTED, NO_RECORDS, subject
from rotunda.broker.ipc.response_writer import FileRange, ResponseFacts
from rotunda.broker.partitions.share.share_session import FINAL_EPOCH, INITIAL_EPOCH
from rotunda.broker.partitions.share.share_window import WINDOW_BYTES, AcquireTerms
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.headers import parse_header
from rotunda.broker.scheduling.purgatory import DelayedOperation, Purgatory

if TYPE_CHECKING:
    from rotunda.broker.coordinator.coordinators import Coordinators
    from rotunda.broker.coordinator.share_state.shard import ShareGroup
    from rotunda.broker.coordinator.share_state.share_consumers import AcknowledgeErrors
    from rotunda.broker.ipc.request import Request
    from rotunda.broker.ipc.response_writer import ResponseWriter
    from rotunda.broker.partitions.partition_manager import PartitionManager
    from rotunda.broker.partitions.share.share_session import ShareSession
    from rotunda.broker.steps import Steps
    from rotunda.shm.tables.current_request import CurrentRequest

logger = logging.getLogger(__name__)

#: Responses with at most this many bytes of records are read here and sent through the ring.
INLINE_RECORDS_BYTES: Final = 16 * 1024

#: Most partitions with records in one response: each is a range of a file.
MOST_RANGES: Final = 128

#: With so many ranges of acquired records a response gets none of further partitions: it is encoded in one go.
MOST_ACQUIRED: Final = 12_500

#: Most windows that one attempt begins: each writes a record. The next attempt begins others.
MOST_BEGUN: Final = 200

#: Longest wait of a fetch: its client may have disconnected, and a live one accepts a response without records.
MOST_WAIT_MS: Final = 300_000

#: Attempts of a fetch whose records were all of aborted transactions.
_ATTEMPTS: Final = 8

_RECORD_LIMIT: Final = 1
_BATCH_OPTIMIZED: Final = 0
_SHARE_FETCH: Final = int(ApiKey.SHARE_FETCH)
_UNKNOWN_LEADER: Final = {"leader_id": -1, "leader_epoch": -1}


class ShareFetch:
    """A request, and what its response has so far."""

    __slots__ = ("acknowledged", "begun", "body", "errors", "group", "local_ns", "request", "session")

    def __init__(self, request: Request, body: Any, group: ShareGroup, session: ShareSession[SharePlace]) -> None:
        self.request, self.body, self.group, self.session = request, body, group, session
        self.acknowledged: AcknowledgeErrors = {}
        #: Error codes of partitions that cannot be read.
        self.errors: dict[SharePlace, int] = {}
        #: Windows that the current attempt has begun.
        self.begun = 0
        self.local_ns = 0

    @property
    def wants_records(self) -> bool:
        body = self.body
        is_open = body.share_session_epoch != FINAL_EPOCH and not body.is_renew_ack
        return is_open and bool(self.session.places) and body.max_records > 0 and body.max_bytes > 0


class ShareFetches:
    """Reads, parks and responds to share fetches."""

    def __init__(
        self,
        coordinators: Coordinators,
        partitions: PartitionManager,
        responses: ResponseWriter,
        purgatory: Purgatory,
        current: CurrentRequest,
    ) -> None:
        self._memory = coordinators.group_memory
        self._consumers, self._partitions, self._responses = coordinators.share_consumers, partitions, responses
        self._metadata, self._table = partitions.metadata, partitions.table
        self._purgatory, self._timers, self._current = purgatory, coordinators.timers, current
        self._now_ns = partitions.clock.monotonic_ns
        self._wall_ms = partitions.clock.wall_ms
        self._reader = ShareReader(partitions)
        coordinators.share_states.on_loaded = purgatory.something_changed

    def forget_unused(self) -> None:
        """Close deleted segment files, and the sessions of closed connections. Called periodically."""
        self._reader.forget_unused()
        self._consumers.end_disconnected()

    def handle(self, request: Request) -> None:
        """Serve a share fetch. Raises InvalidReceive when it is malformed."""
        header = parse_header(request.view, request.start, request.end)
        body = codec.decode(_SHARE_FETCH, request.api_version, request.view, header.body_offset, request.end)
        start = partial(self._try_start, request, body)
        if not start(body.max_wait_ms <= 0 or not self._purgatory.has_room(0)):
            give_up = lambda: self._responses.close_connection(request, self._now_ns())  # noqa: E731
            attempt = self._current.during(request.identity, start)
            self._purgatory.watch(DelayedOperation(attempt, _deadline_ns(request, body), give_up))

    def _try_start(self, request: Request, body: Any, final: bool) -> bool:
        """Validate and begin a fetch, or reject it; False while the group's state is being loaded.

        A client repeats a rejected fetch at once.
        """
        try:
            self._consumers.validate(request, body)
            _validate_limits(body)
            self._begin(request, body)
        except ApiError as error:
            if error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and not final:
                return False
            self._reject(request, body, error)
        return True

    def _begin(self, request: Request, body: Any) -> None:
        """Apply a request to its session, then its acknowledgements, and serve it. Raises ApiError."""
        named = named_in(body.topics)
        if body.share_session_epoch == INITIAL_EPOCH:
            if acknowledged_in(body.topics):
                raise ApiError(ErrorCode.INVALID_REQUEST)
            group, session = self._consumers.begin_session(request, body, named)
        else:
            group, session = self._consumers.find_session(body)
            self._consumers.validate_session(session, named)
            if body.share_session_epoch != FINAL_EPOCH:
                forgotten = [
                    SharePlace(bytes(topic.topic_id), partition)
                    for topic in body.forgotten_topics_data
                    for partition in topic.partitions
                ]
                session.update(named, forgotten)
        fetch = ShareFetch(request, body, group, session)
        self._consumers.apply(request, group, session, body, partial(self._applied, fetch))

    def _applied(self, fetch: ShareFetch, errors: AcknowledgeErrors) -> None:
        fetch.acknowledged, fetch.local_ns = errors, self._now_ns()
        if fetch.wants_records:
            self._serve(fetch)
        else:
            self._respond(fetch, {})

    # ---- reading and waiting -------------------------------------------------------------------------------------

    def _serve(self, fetch: ShareFetch) -> None:
        """Respond with records, or wait for them."""
        if self._try(fetch, final=fetch.body.max_wait_ms <= 0):
            return
        rows = self._rows(fetch)
        if not self._purgatory.has_room(len(rows)):
            self._try(fetch, final=True)
            return

        def try_complete(final: bool) -> bool:
            operation.moved.clear()
            is_done = self._try(fetch, final=final)
            if is_done:
                fetch.group.wake.pop(operation, None)
            return is_done

        def give_up() -> None:
            fetch.group.wake.pop(operation, None)
            self._responses.close_connection(fetch.request, self._now_ns())

        deadline_ns = _deadline_ns(fetch.request, fetch.body)
        attempt = self._current.during(fetch.request.identity, try_complete)
        operation = DelayedOperation(attempt, deadline_ns, give_up, rows)
        fetch.group.wake[operation] = lambda: self._purgatory.wake(operation)
        self._purgatory.watch(operation)

    def _rows(self, fetch: ShareFetch) -> list[int]:
        rows = (self._partitions.row_of(None, place.topic_id, place.partition) for place in fetch.session.places)
        return list(dict.fromkeys(row for row in rows if row >= 0))

    def _try(self, fetch: ShareFetch, *, final: bool) -> bool:
        """Respond if there are enough records, or if this is the last attempt."""
        if self._is_over(fetch):
            return True
        for _ in range(_ATTEMPTS):
            found, is_due = self._find(fetch)
            if not (is_due or final):
                return False
            if not found:
                break
            size = sum(each.found.length for each in found.values())
            quotas, now_ns = fetch.request.quotas, self._now_ns()
            throttle_ms = 0 if quotas is None else quotas.fetched(size, now_ns)
            if throttle_ms:
                self._respond(fetch, {}, throttle_ms)
                return True
            acquired = self._acquire(fetch, found)
            if acquired:
                self._respond(fetch, acquired)
                return True
        self._respond(fetch, {})
        return True

    def _is_over(self, fetch: ShareFetch) -> bool:
        """End a fetch whose client has disconnected, or whose session has ended; False if it may go on."""
        if self._consumers.has_ended(fetch.request.connection_id):
            self._responses.close_connection(fetch.request, self._now_ns())
            return True
        if fetch.group.sessions.get(fetch.session.member) is fetch.session:
            return False
        self._reject(fetch.request, fetch.body, ApiError(ErrorCode.SHARE_SESSION_NOT_FOUND))
        return True

    def _find(self, fetch: ShareFetch) -> tuple[dict[SharePlace, Readable], bool]:
        """Return the records that may be acquired, and whether they are enough for a response."""
        fetch.errors, fetch.begun = {}, 0
        if fetch.group.releasing[fetch.session.member]:
            return {}, False
        config = self._metadata.share_group_config(fetch.group.group_id)
        terms = fetch.group.terms
        offsets: dict[SharePlace, tuple[SharePartition, int]] = {}
        # While it is full, only records that are in flight already are delivered again.
        may_grow = self._memory.admit(fetch.group.group_id, 0)
        for place in fetch.session.rotated():
            if len(offsets) == MOST_RANGES:
                break
            part = self._part(fetch, place)
            if isinstance(part, int):
                if part:
                    fetch.errors[place] = part
                continue
            self._follow_log_start(fetch.group, place, part)
            offset = part.window.fetch_offset(terms.most_in_flight)
            if offset == part.window.next_offset and not may_grow:
                continue
            if 0 <= offset < self._reader.readable_end(part.log.row, committed=config.reads_committed):
                offsets[place] = part, offset
        quotas = fetch.request.quotas
        max_bytes = min(fetch.body.max_bytes, self._metadata.broker_config.fetch_max_bytes)
        if quotas is not None:
            max_bytes = min(max_bytes, quotas.most_fetched)
        found = self._locate(fetch, offsets, max_bytes, committed=config.reads_committed)
        size = sum(each.found.length for each in found.values())
        is_hopeless = all(place in fetch.errors for place in fetch.session.places)
        return found, is_hopeless or size >= min(fetch.body.min_bytes, max_bytes)

    def _locate(
        self,
        fetch: ShareFetch,
        offsets: dict[SharePlace, tuple[SharePartition, int]],
        max_bytes: int,
        *,
        committed: bool,
    ) -> dict[SharePlace, Readable]:
        """Return the records from these offsets on, an equal part of the bytes from each partition.

        A first batch is returned whole: together they exceed ``max_bytes`` by one batch at most.
        """
        each_bytes, left_bytes = max_bytes // max(1, len(offsets)), max_bytes
        found: dict[SharePlace, Readable] = {}
        for place, (part, offset) in offsets.items():
            if found and left_bytes <= 0:
                break
            try:
                located = self._reader.locate(part, offset, each_bytes, committed=committed)
            except OSError as error:
                logger.warning("%s-%d cannot be read: %s", part.log.topic, part.log.partition, error)
                located = int(ErrorCode.KAFKA_STORAGE_ERROR)
            if isinstance(located, int):
                fetch.errors[place] = located
            elif located is not None:
                found[place] = located
                left_bytes -= located.found.length
        return found

    def _acquire(self, fetch: ShareFetch, readable: dict[SharePlace, Readable]) -> dict[SharePlace, Found]:
        """Acquire records for the member, from one partition after the other."""
        body, group, terms = fetch.body, fetch.group, fetch.group.terms
        left, ranges = body.max_records, 0
        acquired: dict[SharePlace, Found] = {}
        for place, each in readable.items():
            if left <= 0 or ranges >= MOST_ACQUIRED:
                break
            limits = AcquireTerms(body.member_id, left, body.batch_size, body.share_acquire_mode == _RECORD_LIMIT)
            try:
                found = self._reader.acquire(each, limits, terms, self._now_ns())
            except OSError as error:
                logger.warning("a segment cannot be read: %s", error)
                fetch.errors[place] = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                continue
            group.watch_locks(place)
            group.count_memory(each.window)
            if found is not None:
                acquired[place] = found
                ranges += len(found.acquired)
                counts = group.counts_of(place)
                for first, last, delivery_count in found.acquired:
                    left -= last - first + 1
                    counts.acquired(last - first + 1, delivery_count)
        return acquired

    # ---- windows -------------------------------------------------------------------------------------------------

    def _part(self, fetch: ShareFetch, place: SharePlace) -> SharePartition | int:
        """Return a partition with its window, or an error code; 0 while it has no window yet."""
        topic = self._consumers.topic_of(fetch.request, place)
        if isinstance(topic, int):
            return topic
        log = ShareLog(topic.partitions[place.partition].row, topic.name, place.partition)
        window = fetch.group.windows.get(place)
        if window is None:
            state = fetch.group.shard.state(fetch.group.group_id, place)
            if state is None:
                return int(ErrorCode.UNKNOWN_SERVER_ERROR)
            if fetch.begun == MOST_BEGUN or place in fetch.group.resolving:
                return 0
            if not self._memory.admit(fetch.group.group_id, WINDOW_BYTES):
                return 0
            fetch.begun += 1
            if fetch.begun == MOST_BEGUN:
                self._timers.after_ms(0, fetch.group.wake_all)
            if state.start_offset == NOT_RESOLVED:
                self._resolve(fetch.group, place, log)
                window = fetch.group.windows.get(place)
                if window is None:
                    return 0
            else:
                window = fetch.group.begin(place, state.start_offset, state.batches)
        return SharePartition(log, window)

    def _resolve(self, group: ShareGroup, place: SharePlace, log: ShareLog) -> None:
        """Find the first offset of a partition without one, now or in slices, and store it.

        So that nothing is skipped after a crash, no record is delivered before it is stored.
        """
        reset = self._metadata.share_group_config(group.group_id).offset_reset
        if reset.strategy is ResetStrategy.BY_DURATION:
            group.resolving.add(place)
            timestamp_ms = self._wall_ms() - reset.duration_ms
            self._timers.in_steps(self._resolve_by_time(group, place, log, timestamp_ms))
        elif reset.strategy is ResetStrategy.EARLIEST:
            self._begin_at(group, place, self._table.read_start(log.row))
        else:
            self._begin_at(group, place, self._table.read_end(log.row))

    def _resolve_by_time(self, group: ShareGroup, place: SharePlace, log: ShareLog, timestamp_ms: int) -> Steps[None]:
        _, end, start = self._table.read_log(log.row)
        reader = self._partitions.reader(*log)
        try:
            found = yield from reader.offset_for_timestamp(timestamp_ms, start, end)
        finally:
            group.resolving.discard(place)
        self._begin_at(group, place, end[0] if found is None else found.offset)
        group.wake_all()

    def _begin_at(self, group: ShareGroup, place: SharePlace, offset: int) -> None:
        state = group.shard.state(group.group_id, place)
        # An offset that was set meanwhile stands.
        if state is not None and state.start_offset == NOT_RESOLVED and group.shard.is_open:
            group.begin(place, offset, [])
            group.changed(place)

    def _follow_log_start(self, group: ShareGroup, place: SharePlace, part: SharePartition) -> None:
        """Skip the records that retention or DeleteRecords have removed."""
        if part.window.log_start_moved(self._table.read_start(part.log.row)):
            group.changed(place)

    # ---- the response --------------------------------------------------------------------------------------------

    def _respond(self, fetch: ShareFetch, acquired: dict[SharePlace, Found], throttle_ms: int = 0) -> None:
        """Send the response, once the changes that it depends on are committed."""
        session, due = fetch.session, set[SharePlace]()
        if fetch.wants_records and not throttle_ms:
            due, session.due = session.due, set(fetch.errors)
            session.served(acquired)
        places = dict.fromkeys((*acquired, *fetch.acknowledged, *fetch.errors, *due))
        fetch.group.shard.when_committed(lambda error: self._send(fetch, acquired, places, throttle_ms, error))

    def _send(
        self,
        fetch: ShareFetch,
        acquired: dict[SharePlace, Found],
        places: Iterable[SharePlace],
        throttle_ms: int,
        error: int,
    ) -> None:
        if error:
            # The windows are loaded again: nothing of this request has happened.
            self._reject(fetch.request, fetch.body, ApiError(error))
            return
        # Partitions of a topic follow each other.
        by_topic: dict[bytes, list[SharePlace]] = {}
        for place in places:
            by_topic.setdefault(place.topic_id, []).append(place)
        responses = [
            {
                "topic_id": topic_id,
                "partitions": [_partition_data(fetch, each, acquired.get(each)) for each in of_topic],
            }
            for topic_id, of_topic in by_topic.items()
        ]
        config = self._metadata.share_group_config(fetch.group.group_id)
        response = {
            "throttle_time_ms": throttle_ms,
            "acquisition_lock_timeout_ms": config.share_record_lock_duration_ms,
            "responses": responses,
        }
        request = fetch.request
        chunks = codec.encode_around_records(_SHARE_FETCH, request.api_version, request.correlation_id, response)
        ranges = [acquired[place] for of_topic in by_topic.values() for place in of_topic if place in acquired]
        quotas = fetch.request.quotas
        throttled_by = 0 if quotas is None or not throttle_ms else quotas.throttled_by
        facts = ResponseFacts(*self._facts(fetch, ranges), throttle_ms, throttled_by)
        self._send_chunks(fetch, chunks, ranges, facts)
        for place, found in acquired.items():
            row = self._partitions.row_of(None, place.topic_id, place.partition)
            if row >= 0:
                self._table.count_fetched(row, self._partitions.index, found.records.length)

    def _facts(self, fetch: ShareFetch, ranges: list[Found]) -> tuple[int, tuple[int, int, int], bytes]:
        """Return the facts for the request log: the first error, the records, the partitions."""
        errors = [error for error in (*fetch.errors.values(), *fetch.acknowledged.values()) if error]
        records = sum(last - first + 1 for each in ranges for first, last, _ in each.acquired)
        size = sum(each.records.length for each in ranges)
        first = next(iter(fetch.session.places), None)
        row = -1 if first is None else self._partitions.row_of(None, first.topic_id, first.partition)
        about = subject(
            row, len(fetch.session.places), min_bytes=fetch.body.min_bytes, max_wait_ms=fetch.body.max_wait_ms
        )
        counted = (min(MOST_COUNTED, records), size, -1) if ranges else NO_RECORDS
        return errors[0] if errors else 0, counted, about

    def _send_chunks(self, fetch: ShareFetch, chunks: list[bytes], ranges: list[Found], facts: ResponseFacts) -> None:
        now_ns = self._now_ns()
        if sum(each.records.length for each in ranges) <= INLINE_RECORDS_BYTES:
            try:
                pieces = [chunks[0]]
                for each, chunk in zip(ranges, chunks[1:], strict=True):
                    pieces += (self._reader.read(each.records), chunk)
            except OSError:
                logger.exception("acquired records cannot be read; closing the connection")
                self._responses.close_connection(fetch.request, now_ns)
                return
            self._responses.send(fetch.request, fetch.local_ns, now_ns, b"".join(pieces), facts)
            return
        file_ranges = [FileRange(len(before), *each.records[:4]) for before, each in zip(chunks, ranges, strict=False)]
        self._responses.send_ranges(fetch.request, (fetch.local_ns, now_ns), b"".join(chunks), file_ranges, facts)

    def _reject(self, request: Request, body: Any, error: ApiError) -> None:
        """Reject a whole request; one beyond the limit of sessions only after its wait."""
        response = {"error_code": error.code, "error_message": error.message}
        payload = codec.encode_response(_SHARE_FETCH, request.api_version, request.correlation_id, response)

        def send(final: bool) -> bool:
            if final:
                now_ns = self._now_ns()
                self._responses.send(request, now_ns, now_ns, payload, ResponseFacts(error.code))
            return final

        if error.code != ErrorCode.SHARE_SESSION_LIMIT_REACHED or not self._purgatory.has_room(0):
            send(final=True)
            return
        give_up = lambda: self._responses.close_connection(request, self._now_ns())  # noqa: E731
        self._purgatory.watch(DelayedOperation(send, _deadline_ns(request, body), give_up))


def _deadline_ns(request: Request, body: Any) -> int:
    """Return the end of a fetch's wait."""
    return request.received_ns + min(max(int(body.max_wait_ms), 0), MOST_WAIT_MS) * 1_000_000


def _partition_data(fetch: ShareFetch, place: SharePlace, found: Found | None) -> dict[str, Any]:
    """Return a partition of a response."""
    ranges = () if found is None else found.acquired
    return {
        "partition_index": place.partition,
        "error_code": fetch.errors.get(place, 0),
        "acknowledge_error_code": fetch.acknowledged.get(place, 0),
        "current_leader": _UNKNOWN_LEADER,
        "records": codec.RecordsGap(0 if found is None else found.records.length),
        "acquired_records": [
            {"first_offset": each.first, "last_offset": each.last, "delivery_count": each.delivery_count}
            for each in ranges
        ],
    }


def _validate_limits(body: Any) -> None:
    """Check the limits of a request. Raises ApiError."""
    if body.is_renew_ack:
        limits = ("max_bytes", "min_bytes", "max_records", "max_wait_ms")
        wrong = [each for each in limits if getattr(body, each)]
        if wrong:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{', '.join(wrong)} must be 0 with a renewal")
    if body.share_acquire_mode not in (_BATCH_OPTIMIZED, _RECORD_LIMIT):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"invalid ShareAcquireMode {body.share_acquire_mode}")
