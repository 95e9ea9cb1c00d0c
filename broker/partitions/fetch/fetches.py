"""The fetches of one handler: any handler can serve them, since offsets are published and records are in files.

Runs in handler processes. All partitions of a fetch are read, in steps if there are very many, and the response is sent
if it has enough bytes. Otherwise the fetch is parked on the rows it watches (``E06``): when some of them have moved,
only their partitions are read again; if ACLs have changed since, all partitions are read again, so that no client
receives records it may no longer read. Records do not pass through this process: a response names ranges of segment
files, except for short ranges, which are cheaper to read here. For a fetch of committed records the log ends at its
last stable offset.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final

from rotunda.broker.errors import InvalidReceive
from rotunda.broker.ipc import response_writer
from rotunda.broker.ipc.request import Request
from rotunda.broker.ipc.request_channel import RANGE
from rotunda.broker.ipc.request_facts import subject
from rotunda.broker.ipc.response_writer import FileRange, ResponseFacts, ResponseWriter
from rotunda.broker.ipc.segment_file_cache import SegmentFiles
from rotunda.broker.log.log_reader import FileSlice
from rotunda.broker.partitions.fetch.fetch import Fetch, FoundRecords
from rotunda.broker.partitions.fetch.fetch_response import PlainParts, frame_fetch_response
from rotunda.broker.partitions.fetch.fetch_sessions import FetchSession, FetchSessions
from rotunda.broker.partitions.fetch.fetch_shape import (
    FORBIDDEN,
    NAMED_TWICE,
    READ_COMMITTED,
    CachedFetch,
    FetchShape,
    FetchTerms,
)
from rotunda.broker.partitions.request_cache import MOST_REQUEST_BYTES, RequestCache, RequestCaches
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.headers import parse_header
from rotunda.broker.protocol.messages.fetch import (
    FIRST_EPOCH,
    NO_EPOCH,
    TOPIC_ID_FROM,
    FetchPart,
    FetchRequest,
    read_fetch,
)
from rotunda.broker.scheduling.purgatory import DelayedOperation, Purgatory
from rotunda.broker.scheduling.slices import SlicedWork, Slices, TooManyWaitError, Work
from rotunda.broker.server_log.log_setup import RepeatedWarnings
from rotunda.shm.tables.partitions import STATE_OPEN

if TYPE_CHECKING:
    from rotunda.broker.ipc.process_context import ProcessContext
    from rotunda.broker.partitions.partition_manager import PartitionManager
    from rotunda.shm.tables.current_request import CurrentRequest

logger = logging.getLogger(__name__)

#: Responses with at most this many bytes of records are read here and sent through the ring.
INLINE_RECORDS_BYTES: Final = 16 * 1024

#: Partitions of a fetch read at once, and per later step; between steps other requests are served.
PARTS_AT_ONCE: Final = 2_000
PARTS_IN_A_STEP: Final = 250

#: Its index in `PartFields`.
FETCH_OFFSET: Final = 4

#: Retries of a partition if its files are removed before its records are read.
ATTEMPTS: Final = 3

#: Longest wait of a fetch: its client may have disconnected, and a live one accepts a response without records.
MOST_WAIT_MS: Final = 300_000

_NOTHING: Final = FileSlice(b"", 0, 0, 0, 0)

#: By version and isolation level.
_plain_parts = cache(lambda version, committed: PlainParts(version, committed=committed))


class Fetches:
    """Reads, parks and responds to fetches."""

    def __init__(
        self,
        context: ProcessContext,
        partitions: PartitionManager,
        responses: ResponseWriter,
        delayed: Purgatory,
        slices: Slices,
        current: CurrentRequest,
        caches: RequestCaches,
    ) -> None:
        self._parked = 0
        #: Fetches with an empty response because too many were parked.
        self._not_parked = 0
        self._partitions, self._table = partitions, partitions.table
        self._metadata, self._authorizer = partitions.metadata, partitions.metadata.authorizer
        self._current = current
        self._client_hosts = context.client_hosts
        self._responses = responses
        self._purgatory = delayed
        self._slices = slices
        self._now_ns = partitions.clock.monotonic_ns
        self._cache: RequestCache[CachedFetch] = caches.open()
        slots = self._metadata.broker_config.max_incremental_fetch_session_cache_slots
        self._sessions = FetchSessions(-(-slots // context.handlers), self._now_ns)
        #: Fetches that are read in steps.
        self._begun: set[Fetch] = set()
        self._files = SegmentFiles()
        self._warnings = RepeatedWarnings(logger, self._now_ns)

    def forget_removed(self) -> None:
        """Close deleted segment files. Called periodically."""
        self._files.forget_removed()

    def topics_of_session(self, number: int) -> set[tuple[str | None, bytes | None]]:
        """Return the topics of a session, each by name or by id; empty if there is no such session."""
        session = self._sessions.find(number)
        return set() if session is None else {part[:2] for part in session.parts}

    def counters(self) -> dict[str, int]:
        """Return the counters since the start, by metric name."""
        return {
            "fetches_parked": self._parked,
            "fetches_not_parked": self._not_parked,
            "fetch_sessions_evicted": self._sessions.evicted,
        }

    def gauges(self) -> dict[str, int]:
        """Return the current gauges, by metric name."""
        return {"fetch_sessions": len(self._sessions), "fetch_session_partitions": self._sessions.partitions}

    # ---- parsing and sessions ------------------------------------------------------------------------------------

    def try_fast(self, request: Request) -> bool:
        """Serve a fetch that equals a cached one except for its offsets; False if none matches. HOT."""
        found = self._cache.find(request)
        if found is None:
            return False
        cached, varying = found
        if cached.shape is None:
            epoch, *offsets = varying
            if epoch in (FIRST_EPOCH, NO_EPOCH):
                # It closes the session that the cached request continued.
                return False
            self._serve_incremental(request, cached.terms, cached.body, epoch, offsets)
        else:
            self._serve(Fetch(cached.shape, varying, request))
        return True

    def handle(self, request: Request) -> None:
        """Serve a fetch. Raises InvalidReceive when it is malformed."""
        header = parse_header(request.view, request.start, request.end)
        # The request may list unknown partitions, and a few twice.
        most_parts = 2 * self._metadata.broker_config.max_partitions
        body = read_fetch(request.view, request.api_version, header.body_offset, request.end, most_parts)
        terms = self._terms(body, request, header.client_id)
        offsets = [part[FETCH_OFFSET] for part in body.parts]
        session, shape = None, None
        if body.session_epoch in (FIRST_EPOCH, NO_EPOCH):
            self._sessions.end(body.session_id)
            if body.session_epoch == FIRST_EPOCH:
                session = self._sessions.begin(body.parts, request.identity)
            if session is not None:
                self._serve_session(session, terms, request)
                return
            shape = FetchShape(terms, body.parts)
            self._serve(Fetch(shape, offsets, request))
        else:
            self._serve_incremental(request, terms, body, body.session_epoch, offsets)
        if body.places and request.end - request.start <= MOST_REQUEST_BYTES:
            self._cache.keep(request.connection_id, CachedFetch(request, body, terms, shape))

    def _serve_incremental(
        self, request: Request, terms: FetchTerms, body: FetchRequest, epoch: int, offsets: Sequence[int]
    ) -> None:
        """Serve a fetch of a session; ``epoch`` and ``offsets`` are its own, those in ``body`` are ignored."""
        session, identity = self._sessions.find(body.session_id), request.identity
        if session is None:
            self._reject(request, terms, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        elif epoch == session.last_epoch and identity == session.identity:
            # Its records were removed before they were sent, and its processor repeats the request.
            session.reset_sent_ends()
            self._serve_session(session, terms, request)
        elif epoch != session.epoch:
            self._reject(request, terms, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        elif session.has_ids != (terms.version >= TOPIC_ID_FROM):
            self._reject(request, terms, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        elif not self._sessions.advance(session, body.parts, offsets, body.forgotten, identity):
            self._reject(request, terms, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        elif session.parts:
            self._serve_session(session, terms, request)
        else:
            self._sessions.end(session.number)
            self._serve(Fetch(FetchShape(terms, body.parts), offsets, request))

    def _serve_session(self, session: FetchSession, terms: FetchTerms, request: Request) -> None:
        """Respond with the changes in the partitions of a session."""
        shape = session.shape(terms, self._metadata.version)
        self._serve(Fetch(shape, session.offsets, request, session))

    def _reject(self, request: Request, terms: FetchTerms, error: ErrorCode) -> None:
        """Reject a fetch whose session cannot continue: its client sends a full request."""
        now_ns = self._now_ns()
        about = subject(min_bytes=terms.min_bytes, max_wait_ms=terms.max_wait_ms)
        self._send_empty(request, (now_ns, now_ns), (0, int(error), 0), ResponseFacts(int(error), about=about))

    def _terms(self, body: FetchRequest, request: Request, client_id: str) -> FetchTerms:
        version, quotas = request.api_version, request.quotas
        most_bytes = min(body.max_bytes, self._metadata.broker_config.fetch_max_bytes)
        if quotas is not None:
            most_bytes = min(most_bytes, quotas.most_fetched)
        is_committed = body.isolation_level == READ_COMMITTED
        return FetchTerms(
            version, body.max_wait_ms, body.min_bytes, most_bytes, body.isolation_level, client_id, request.session,
            _plain_parts(version, is_committed), is_committed, min(body.min_bytes, most_bytes), self._partitions.index,
        )  # fmt: skip

    # ---- reading and waiting -------------------------------------------------------------------------------------

    def _serve(self, fetch: Fetch) -> None:
        """Read the partitions of a fetch, then respond or park it; a very large one in steps. HOT."""
        if self._authorizer is not None:
            fetch.rights = self._authorizer.changes
        steps = self._steps(fetch)
        for _ in steps:
            self._continue_in_steps(fetch, steps)
            return

    def _steps(self, fetch: Fetch) -> Work:
        parts, start, stop = len(fetch.parts), 0, PARTS_AT_ONCE
        while True:
            stop = min(stop, parts)
            if len(fetch.shape.fields) < stop:
                fetch.shape.look_up(self._metadata, stop)
            self.read(fetch, range(start, stop))
            if stop == parts:
                break
            yield None
            start, stop = stop, stop + PARTS_IN_A_STEP
        if fetch.moved:
            self._read_moved(fetch)
        fetch.local_ns = self._now_ns()
        if fetch.is_enough or fetch.terms.max_wait_ms <= 0:
            self._send(fetch)
        elif not self._purgatory.has_room(len(fetch.rows)):
            # Its client retries, as after a wait without records.
            self._not_parked += 1
            self._send(fetch)
        else:
            self._park(fetch)

    def _continue_in_steps(self, fetch: Fetch, steps: Work) -> None:
        def failed() -> None:
            self._begun.discard(fetch)
            self._responses.close_connection(fetch.request, self._now_ns())

        task = SlicedWork(
            steps,
            lane=fetch.request.connection_id,
            identity=fetch.request.identity,
            done=lambda _: self._begun.discard(fetch),
            failed=failed,
            doing=("FETCH", fetch.terms.client_id),
            size=fetch.request.size_bytes,
            is_wanted=lambda: not self._client_hosts.has_ended(fetch.request.connection_id),
        )
        try:
            self._slices.add(task)
        except TooManyWaitError as error:
            raise InvalidReceive(f"cannot start Fetch: {error}") from error
        self._begun.add(fetch)

    def rows_moved(self, rows: Collection[int] | None) -> None:
        """Record moved rows for the fetches that are read in steps; None: any row may have moved."""
        for fetch in self._begun:
            fetch.moved += fetch.rows if rows is None else [row for row in rows if row in fetch.rows]

    def _park(self, fetch: Fetch) -> None:
        def try_complete(final: bool) -> bool:
            if self._authorizer is not None and self._authorizer.changes != fetch.rights:
                self._serve(fetch.anew())
                return True
            read = self._read_moved(fetch)
            if not (final or fetch.is_enough):
                return False
            readable = fetch.found.keys() | fetch.uncounted.keys()
            if not readable <= read:
                # Records found earlier may have been removed since, and may have left no budget for others.
                self._read_again(fetch, readable)
            self._send(fetch)
            return True

        def give_up() -> None:
            self._responses.close_connection(fetch.request, self._now_ns())

        self._parked += 1
        # From its arrival: a replacement that reads it again does not restart the wait.
        deadline_ns = fetch.request.received_ns + min(fetch.terms.max_wait_ms, MOST_WAIT_MS) * 1_000_000
        attempt = self._current.during(fetch.request.identity, try_complete)
        self._purgatory.watch(DelayedOperation(attempt, deadline_ns, give_up, fetch.rows, fetch.moved))

    def read(self, fetch: Fetch, indices: Iterable[int]) -> None:
        """Read partitions, first those with the limits to themselves. HOT.

        Most have no new records, which a few words of the partition table show.
        """
        read_fetched = self._table.read_fetched
        encode_empty, is_committed = fetch.terms.plain.encode_empty, fetch.terms.is_committed
        sent_ends = fetch.sent_ends
        parts, fields, offsets = fetch.parts, fetch.shape.fields, fetch.offsets
        for index in indices:
            row, partition, epoch = fields[index]
            is_served = False
            if row >= 0:
                offset = offsets[index]
                state, leader_epoch, stable, end, log_start = read_fetched(row)
                is_served = state == STATE_OPEN and (epoch == leader_epoch or epoch < 0)
                is_at_end = offset == end or (is_committed and stable <= offset < end)
                if is_at_end and is_served and log_start <= offset:
                    stable = min(stable, end)
                    if sent_ends is None:
                        parts[index] = encode_empty(partition, end, stable, log_start)
                    else:
                        parts[index] = fetch.empty(index, end, stable, log_start)
                    continue
            self._read_part(fetch, index, row, is_served)

    def _read_moved(self, fetch: Fetch) -> set[int]:
        """Read the partitions of moved rows again, and return the indices of their parts."""
        rows = fetch.shape.rows
        again = {rows[row] for row in fetch.moved}
        fetch.moved.clear()
        if NAMED_TWICE in again:
            again = set(range(len(fetch.parts)))
        self._read_again(fetch, again)
        return again

    def _read_again(self, fetch: Fetch, indices: Collection[int]) -> None:
        """Read some partitions again, at their current rows."""
        for index in indices:
            fetch.forget(index)
            fetch.shape.look_up_again(index, self._partitions.row_of)
        self.read(fetch, sorted(indices))

    def _read_part(self, fetch: Fetch, index: int, row: int, is_served: bool) -> None:
        """Find the records of one partition. An unreadable file is an error of that partition only.

        ``is_served``: its row is open at this epoch, so no check is needed before its offsets.
        """
        part = fetch.shape.parts[index]
        try:
            error = 0 if is_served else self._part_error(fetch.part(index), row)
            if row == FORBIDDEN and fetch.terms.session.is_faulty:
                error = fetch.terms.session.error_of(part[0] or self._name_of(part[1])) or error
            if error:
                fetch.fail(index, error)
            else:
                self._find(fetch, index, row)
        except OSError as failure:
            name = f"{part[0] or self._name_of(part[1])}-{part[2]}"
            self._warnings.warning(name, "%s cannot be read: %s", name, failure)
            fetch.fail(index, int(ErrorCode.KAFKA_STORAGE_ERROR))

    def _find(self, fetch: Fetch, index: int, row: int) -> None:
        """Find the records of one partition. Raises OSError. HOT."""
        name, topic_id, partition, _, _, _, _, max_bytes = fetch.shape.parts[index]
        fetch_offset = fetch.offsets[index]
        terms = fetch.terms
        table, is_committed = self._table, terms.is_committed
        allowed_bytes, min_one_batch = fetch.budget(max_bytes)
        while True:
            # The markers of all transactions below the stable offset are below the end.
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
            # An end is valid while its segment is the last one: after a roll, compaction may replace the segment.
            if table.read_end(row) == end_offset or table.read_position(row)[1] == end[1]:
                break
        if found is None:
            self._put_out_of_range(fetch, index, row, end_offset)
            return
        if aborted:
            fetch.put_aborted(index, offsets, row, found, aborted)
        else:
            fetch.is_cut |= not found.length
            fetch.put_plain(index, offsets, row, found)
        if fetch.records_bytes < terms.wanted_bytes:
            fetch.count_cut(index, found, allowed_bytes, (readable_offset, end[1]))

    def _put_out_of_range(self, fetch: Fetch, index: int, row: int, end_offset: int) -> None:
        """Add the error for an offset outside the log, or without a file."""
        part = fetch.part(index)
        if self._partitions.is_behind:
            # The topic may be deleted and its row reused: deletion of a log does not reset readers.
            error = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            error = self._part_error(part, row) or int(ErrorCode.OFFSET_OUT_OF_RANGE)
        is_there = self._table.read_start(row) <= part.fetch_offset <= end_offset
        if error == ErrorCode.OFFSET_OUT_OF_RANGE and is_there:
            # The offset exists, its file does not: a consumer that reset its offset would lose the records in between.
            error = int(ErrorCode.KAFKA_STORAGE_ERROR)
        fetch.fail(index, error)

    def _part_error(self, part: FetchPart, row: int) -> int:
        """Return the error of a partition that applies before its offsets are checked, or 0."""
        if row == FORBIDDEN:
            return int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if row < 0:
            by_id = part.topic_name is None and self._metadata.topic_by_id(part.topic_id or b"") is None
            return int(ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self._table.state(row) != STATE_OPEN:
            # Its owner is about to open it, or could not; the consumer retries.
            return int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        epoch = self._table.leader_epoch(row)
        if 0 <= part.current_leader_epoch < epoch:
            return int(ErrorCode.FENCED_LEADER_EPOCH)
        return int(ErrorCode.UNKNOWN_LEADER_EPOCH) if part.current_leader_epoch > epoch else 0

    def _name_of(self, topic_id: bytes | None) -> str:
        topic = self._metadata.topic_by_id(topic_id or b"")
        return topic.name if topic is not None else ""

    # ---- the response --------------------------------------------------------------------------------------------

    def _send(self, fetch: Fetch) -> None:
        in_order = fetch.in_order()
        chunks = fetch.chunks(in_order)
        quotas, now_ns = fetch.request.quotas, self._now_ns()
        if quotas is not None and (throttle_ms := quotas.fetched(sum(map(len, chunks)) + fetch.records_bytes, now_ns)):
            self._send_nothing(fetch, throttle_ms, quotas.throttled_by, now_ns)
            return
        if fetch.records_bytes <= INLINE_RECORDS_BYTES or not self._try_ranges(fetch, in_order, chunks, now_ns):
            if in_order:
                in_order, chunks = self._with_records(fetch, in_order, chunks)
            self._responses.send(fetch.request, fetch.local_ns, self._now_ns(), b"".join(chunks), fetch.facts())
        count_fetched, handler = self._table.count_fetched, fetch.terms.handler
        for _, (row, found, _) in in_order:
            count_fetched(row, handler, found.length)
        if fetch.session is not None:
            fetch.note_sent()

    def _try_ranges(
        self, fetch: Fetch, in_order: list[tuple[int, FoundRecords]], chunks: list[bytes], now_ns: int
    ) -> bool:
        """Have the processor send the records from files; False if the rest of the response fits no ring. HOT."""
        ranges = [found for _, (_, found, _) in in_order]
        request, stamps, responses = fetch.request, (fetch.local_ns, now_ns), self._responses
        facts = fetch.records(), fetch.shape.tail
        if not fetch.errors and responses.try_ranges(request, stamps, chunks, ranges, facts):
            return True
        inline = b"".join(chunks)
        if len(inline) + sum([RANGE.size + len(found.path) for found in ranges]) > response_writer.MOST_ENVELOPE_BYTES:
            return False
        pairs = zip(chunks, ranges, strict=False)
        responses.send_ranges(
            request, stamps, inline, [FileRange(len(before), *found[:4]) for before, found in pairs], fetch.facts()
        )
        return True

    def _send_nothing(self, fetch: Fetch, throttle_ms: int, throttled_by: int, now_ns: int) -> None:
        """Send an empty response: the client has used up a quota, and retries after the throttle time (`E12`).

        The session's ends do not change. A session created by this fetch is closed, as in Kafka.
        """
        session = fetch.session
        number = 0 if session is None else session.number
        if session is not None and session.is_new:
            self._sessions.end(number)
            number = 0
        facts = ResponseFacts(about=fetch.shape.about, throttle_ms=throttle_ms, throttled_by=throttled_by)
        self._send_empty(fetch.request, (fetch.local_ns, now_ns), (throttle_ms, 0, number), facts)

    def _send_empty(
        self, request: Request, stamps: tuple[int, int], status: tuple[int, int, int], facts: ResponseFacts
    ) -> None:
        """Send a response without partitions; ``status`` is that of `frame_fetch_response`."""
        (wire,) = frame_fetch_response(request.api_version, request.correlation_id, [], [], status=status)
        self._responses.send(request, *stamps, wire, facts)

    def _with_records(
        self, fetch: Fetch, in_order: list[tuple[int, FoundRecords]], chunks: list[bytes]
    ) -> tuple[list[tuple[int, FoundRecords]], list[bytes]]:
        """Return the found records, and the chunks of the whole response with the records in it.

        A partition whose topic or files were removed since its records were found is read again.
        """
        attempts = 0
        while True:
            pieces = [chunks[0]]
            for (index, (_, found, _)), chunk in zip(in_order, chunks[1:], strict=True):
                try:
                    pieces += (self._read_records(found), chunk)
                except OSError:
                    attempts += 1
                    if attempts <= ATTEMPTS:
                        self._read_again(fetch, (index,))
                    else:
                        fetch.forget(index)
                        fetch.fail(index, int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
                    break
            else:
                return in_order, pieces
            in_order = fetch.in_order()
            chunks = fetch.chunks(in_order)

    def _read_records(self, found: FileSlice) -> bytes:
        file = self._files.known(found.inode) or self._files.open(os.fsdecode(found.path), found.inode)
        return os.pread(file.fd, found.length, found.position)
