"""Fetch: served by any handler, because offsets are published in shared memory and the bytes lie in files.

Runs in handler processes. A fetch that finds enough answers at once; another one is parked on the rows it watches
(``E06``). When some of them have moved, their partitions, and no others, are read again; if ACLs have changed since, it
is begun anew instead, so that nobody gets what they may no longer read. Records never pass through this process: the
answer names ranges of segment files, unless they are so short that reading them here is cheaper.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from broker.errors import InvalidReceive
from broker.ipc import response_writer
from broker.ipc.request import Request
from broker.ipc.request_channel import RANGE
from broker.ipc.request_facts import subject
from broker.ipc.response_writer import AnswerFacts, FileRange, ResponseWriter
from broker.ipc.segment_file_cache import SegmentFiles
from broker.partitions.fetch.fetch_reader import FetchReader
from broker.partitions.fetch.fetch_sessions import FetchSession, FetchSessions
from broker.partitions.fetch.fetch_shape import (
    MOST_REMEMBERED,
    READ_COMMITTED,
    FetchShape,
    FetchTerms,
    RememberedFetch,
    remembered,
)
from broker.partitions.fetch.pending_fetch import FoundRecords, PendingFetch
from broker.partitions.request_memo import RequestMemo
from broker.protocol.error_codes import ErrorCode
from broker.protocol.headers import parse_header
from broker.protocol.messages.fetch import (
    FIRST_EPOCH,
    NO_EPOCH,
    TOPIC_ID_FROM,
    FetchRequest,
    frame_fetch_response,
    parse_fetch,
)
from broker.scheduling.purgatory import DelayedOperation, Purgatory
from broker.scheduling.slices import SlicedWork, Slices, TooManyWaitError, Work

if TYPE_CHECKING:
    from broker.log.log_reader import FileSlice
    from broker.partitions.partition_manager import PartitionManager
    from shm.tables.client_hosts import ClientHosts
    from shm.tables.current_request import CurrentRequest

#: Answers with at most this many bytes of records are read here and travel through the ring.
INLINE_RECORDS_BYTES: Final = 16 * 1024

#: A fetch of more partitions is read in slices of so many, between which others are served.
PARTS_IN_A_TURN: Final = 2_000
PARTS_IN_A_SLICE: Final = 250

#: Where `PartFields` has it.
FETCH_OFFSET: Final = 4

#: How often a partition is read anew because its files have gone before its records were read.
ATTEMPTS: Final = 3


#: A fetch waits no longer than this: its client may have gone, and finds nothing strange in an answer without records.
MOST_WAIT_MS: Final = 300_000


class FetchPath:
    """Answers and parks fetches."""

    def __init__(
        self,
        partitions: PartitionManager,
        responses: ResponseWriter,
        delayed: Purgatory,
        slices: Slices,
        current: CurrentRequest,
        client_hosts: ClientHosts,
        handlers: int,
    ) -> None:
        self._parked = 0
        #: Fetches that were answered without records because too many waited.
        self._not_parked = 0
        self._partitions = partitions
        self._metadata = partitions.metadata
        self._current = current
        self._client_hosts = client_hosts
        self._responses = responses
        self._purgatory = delayed
        self._slices = slices
        self._now_ns = partitions.clock.monotonic_ns
        self._reader = FetchReader(partitions)
        self._memo: RequestMemo[RememberedFetch] = RequestMemo(MOST_REMEMBERED)
        slots = self._metadata.broker_config.max_incremental_fetch_session_cache_slots
        self._sessions = FetchSessions(-(-slots // handlers), self._now_ns)
        #: Fetches that are read in slices.
        self._begun: set[PendingFetch] = set()
        self._files = SegmentFiles()
        self._authorizer = partitions.metadata.authorizer

    def forget_metadata(self) -> None:
        """Parse the next request of every connection anew: topics have changed."""
        self._memo.clear()

    def topics_of_session(self, number: int) -> set[tuple[str | None, bytes | None]]:
        """Return the topics of a session, each by name or by id; none if there is no such session."""
        session = self._sessions.find(number)
        return set() if session is None else {part[:2] for part in session.parts}

    def counters(self) -> dict[str, int]:
        """Return what has been counted since the start, by metric name."""
        return {
            "fetches_parked": self._parked,
            "fetches_not_parked": self._not_parked,
            "fetch_sessions_evicted": self._sessions.evicted,
        }

    def gauges(self) -> dict[str, int]:
        """Return what is so now, by metric name."""
        return {"fetch_sessions": len(self._sessions), "fetch_session_partitions": self._sessions.partitions}

    def try_fast(self, request: Request) -> bool:
        """Answer or park a fetch that differs from an earlier one in its offsets alone; False if it does not. HOT."""
        found = self._memo.find(request)
        if found is None:
            return False
        known, varying = found
        if known.shape is None:
            epoch, *offsets = varying
            if epoch in (FIRST_EPOCH, NO_EPOCH):
                # It ends the session with which the one like it went on.
                return False
            self._go_on(request, known.terms, known.body, epoch, offsets)
        else:
            self._begin(PendingFetch(known.shape, varying, request))
        return True

    def handle(self, request: Request) -> None:
        """Answer a fetch or park it. Raises InvalidReceive when it is malformed."""
        header = parse_header(request.view, request.start, request.end)
        # There may be unknown ones among them, and a few that are named twice.
        most_parts = 2 * self._metadata.broker_config.max_partitions
        body = parse_fetch(request.view, request.api_version, header.body_offset, request.end, most_parts)
        terms = self._terms(body, request, header.client_id)
        offsets = [part[FETCH_OFFSET] for part in body.parts]
        session, shape = None, None
        if body.session_epoch in (FIRST_EPOCH, NO_EPOCH):
            self._sessions.end(body.session_id)
            if body.session_epoch == FIRST_EPOCH:
                session = self._sessions.begin(body.parts, request.identity)
            if session is None:
                shape = FetchShape(terms, body.parts)
                self._begin(PendingFetch(shape, offsets, request))
            else:
                self._begin_in(session, terms, request)
                return
        else:
            self._go_on(request, terms, body, body.session_epoch, offsets)
        known = remembered(request, header.body_offset, body, terms, shape)
        if known is not None:
            self._memo.keep(request.connection_id, known)

    def _go_on(
        self, request: Request, terms: FetchTerms, body: FetchRequest, epoch: int, offsets: Sequence[int]
    ) -> None:
        """Take a fetch that goes on with a session. ``epoch`` and ``offsets`` are its own, whatever ``body`` has."""
        session, identity = self._sessions.find(body.session_id), request.identity
        if session is None:
            self._refuse(request, terms, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        elif epoch == session.last_epoch and identity == session.identity:
            # Its records had gone when they were to be sent, and its processor asks again.
            session.tell_again()
            self._begin_in(session, terms, request)
        elif epoch != session.epoch:
            self._refuse(request, terms, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        elif session.has_ids != (terms.version >= TOPIC_ID_FROM):
            self._refuse(request, terms, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        elif not self._sessions.go_on(session, body.parts, offsets, body.forgotten, identity):
            self._refuse(request, terms, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        elif session.parts:
            self._begin_in(session, terms, request)
        else:
            self._sessions.end(session.number)
            self._begin(PendingFetch(FetchShape(terms, body.parts), offsets, request))

    def _begin_in(self, session: FetchSession, terms: FetchTerms, request: Request) -> None:
        """Answer with what is new in the partitions of a session."""
        shape = session.shape(terms, self._metadata.version)
        self._begin(PendingFetch(shape, session.offsets, request, session))

    def _refuse(self, request: Request, terms: FetchTerms, error: ErrorCode) -> None:
        """Answer a fetch whose session is not to be gone on with: its client sends everything again."""
        now_ns = self._now_ns()
        wire = frame_fetch_response(request.api_version, request.correlation_id, [], [], status=(0, int(error), 0))[0]
        about = subject(min_bytes=terms.min_bytes, max_wait_ms=terms.max_wait_ms)
        self._responses.send(request, now_ns, now_ns, wire, AnswerFacts(int(error), about=about))

    def _terms(self, body: FetchRequest, request: Request, client_id: str) -> FetchTerms:
        version, quotas = request.api_version, request.quotas
        most_bytes = min(body.max_bytes, self._metadata.broker_config.fetch_max_bytes)
        if quotas is not None:
            most_bytes = min(most_bytes, quotas.most_fetched)
        is_committed = body.isolation_level == READ_COMMITTED
        plain = self._reader.plain_parts(version, is_committed)
        return FetchTerms(
            version, body.max_wait_ms, body.min_bytes, most_bytes, body.isolation_level, client_id,
            request.session, plain, is_committed, min(body.min_bytes, most_bytes), self._partitions.index,
        )  # fmt: skip

    def _begin(self, fetch: PendingFetch) -> None:
        """Read the partitions of a fetch, now or in slices, and answer it or let it wait."""
        if self._authorizer is not None:
            fetch.rights = self._authorizer.changes
        parts = len(fetch.shape.parts)
        if parts > PARTS_IN_A_TURN:
            self._begin_slices(fetch, parts)
        else:
            self._reader.read(fetch, 0, parts)
            self._settle(fetch)

    def _begin_slices(self, fetch: PendingFetch, parts: int) -> None:
        """Read the partitions of a large fetch in slices."""

        def work() -> Work:
            try:
                for start in range(0, parts, PARTS_IN_A_SLICE):
                    self._reader.read(fetch, start, min(start + PARTS_IN_A_SLICE, parts))
                    yield None
            finally:
                self._begun.discard(fetch)

        new = SlicedWork(
            work(),
            lane=fetch.request.connection_id,
            identity=fetch.request.identity,
            done=lambda _: self._settle(fetch),
            failed=lambda: self._responses.close_connection(fetch.request, self._now_ns()),
            doing=("FETCH", fetch.terms.client_id),
            size=fetch.request.size_bytes,
            is_wanted=lambda: not self._client_hosts.has_ended(fetch.request.connection_id),
        )
        try:
            self._slices.add(new)
        except TooManyWaitError as error:
            raise InvalidReceive(f"Fetch cannot be begun: {error}") from error
        self._begun.add(fetch)

    def rows_moved(self, rows: Collection[int] | None) -> None:
        """Take note of rows that have moved while fetches are read in slices; None: any of them may have."""
        for fetch in self._begun:
            fetch.moved += fetch.rows if rows is None else [row for row in rows if row in fetch.rows]

    def _settle(self, fetch: PendingFetch) -> None:
        """Answer a fetch whose partitions have been read, or let it wait."""
        if fetch.moved:
            self._reader.read_moved(fetch)
        fetch.local_ns = self._now_ns()
        if fetch.is_enough or fetch.terms.max_wait_ms <= 0:
            self._send(fetch)
        elif not self._purgatory.has_room(len(fetch.rows)):
            # Its client asks again, as after a wait that was in vain.
            self._not_parked += 1
            self._send(fetch)
        else:
            self._park(fetch)

    def _park(self, fetch: PendingFetch) -> None:
        def try_complete(final: bool) -> bool:
            if self._authorizer is not None and self._authorizer.changes != fetch.rights:
                self._begin(fetch.anew())
                return True
            read = self._reader.read_moved(fetch)
            if not (final or fetch.is_enough):
                return False
            readable = fetch.found.keys() | fetch.uncounted.keys()
            if not readable <= read:
                # Records that were found earlier may have gone, and others may have been kept out by them.
                self._reader.read_in_order(fetch, readable)
            self._send(fetch)
            return True

        def give_up() -> None:
            self._responses.close_connection(fetch.request, self._now_ns())

        self._parked += 1
        # From its arrival on: a replacement that reads it again does not let its client wait anew.
        deadline_ns = fetch.request.received_ns + min(fetch.terms.max_wait_ms, MOST_WAIT_MS) * 1_000_000
        attempt = self._current.during(fetch.request.identity, try_complete)
        self._purgatory.watch(DelayedOperation(attempt, deadline_ns, give_up, fetch.rows, fetch.moved))

    def forget_unused(self, now_ns: int) -> None:
        """Let go of segment files that have been deleted, and of what is remembered of silent connections."""
        self._files.forget_removed()
        self._memo.forget_unused(now_ns)

    def _send(self, fetch: PendingFetch) -> None:
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
        count_fetched, handler = self._partitions.table.count_fetched, fetch.terms.handler
        for _, (row, found, _) in in_order:
            count_fetched(row, handler, found.length)
        if fetch.session is not None:
            fetch.note_told()

    def _try_ranges(
        self, fetch: PendingFetch, in_order: list[tuple[int, FoundRecords]], chunks: list[bytes], now_ns: int
    ) -> bool:
        """Let the processor send the records from their files; False if the rest of the answer fits no ring. HOT."""
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

    def _send_nothing(self, fetch: PendingFetch, throttle_ms: int, throttled_by: int, now_ns: int) -> None:
        """Answer without any partition: the client has used up a quota, and asks again when the time is over (`E12`).

        Its session has told it nothing. One that this fetch was to begin is not begun, as in Kafka.
        """
        session = fetch.session
        number = 0 if session is None else session.number
        if session is not None and session.is_new:
            self._sessions.end(number)
            number = 0
        request, status = fetch.request, (throttle_ms, 0, number)
        wire = frame_fetch_response(request.api_version, request.correlation_id, [], [], status=status)[0]
        facts = AnswerFacts(about=fetch.shape.about, throttle_ms=throttle_ms, throttled_by=throttled_by)
        self._responses.send(request, fetch.local_ns, now_ns, wire, facts)

    def _with_records(
        self, fetch: PendingFetch, in_order: list[tuple[int, FoundRecords]], chunks: list[bytes]
    ) -> tuple[list[tuple[int, FoundRecords]], list[bytes]]:
        """Return what has been found, and the whole answer in pieces, with the records in it.

        A partition whose topic has gone, or a part of its log, since its records were found is read again.
        """
        attempts = 0
        while True:
            pieces = [chunks[0]]
            for (index, (_, found, _)), chunk in zip(in_order, chunks[1:], strict=True):
                try:
                    pieces += (self._read(found), chunk)
                except OSError:
                    attempts += 1
                    if attempts <= ATTEMPTS:
                        self._reader.read_again(fetch, index)
                    else:
                        self._reader.refuse(fetch, index)
                    break
            else:
                return in_order, pieces
            in_order = fetch.in_order()
            chunks = fetch.chunks(in_order)

    def _read(self, found: FileSlice) -> bytes:
        file = self._files.known(found.inode) or self._files.open(os.fsdecode(found.path), found.inode)
        return os.pread(file.fd, found.length, found.position)
