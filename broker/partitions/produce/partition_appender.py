"""The partition appender: the batches of one loop pass are validated and staged, then committed and acknowledged.

Runs in handler processes. Produced batches have notes, which ensure that each is appended once; the handler's own
records and transaction markers have none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from rotunda.broker.ipc.request import Request
from rotunda.broker.ipc.request_facts import Records, records_of
from rotunda.broker.ipc.response_writer import ResponseFacts, ResponseWriter
from rotunda.broker.log.partition_log import LogWriteFailed
from rotunda.broker.log.validation.append_limits import TO_BE_VALIDATED, Validated
from rotunda.broker.partitions.owned_partition import AppendCallback, OwnedPartition
from rotunda.broker.partitions.produce.append_notes import NOT_APPENDED, NOTE, REFUSED, note_rejection, write_note
from rotunda.broker.partitions.produce.verification import NEEDS_VERIFICATION, VerificationGuards
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.records.record_batch import TRANSACTIONAL_BIT, BatchHeader, read_header, unpack_header, validate
from rotunda.broker.scheduling.deferred import Deferred

if TYPE_CHECKING:
    from rotunda.broker.partitions.owned_partition import FastAppends, PlainProduce
    from rotunda.broker.partitions.transaction_messages import Marker
    from rotunda.broker.quotas.client_sensors import ClientSensors

logger = logging.getLogger(__name__)

#: Outcomes of staging that are acknowledged as success: a duplicate was appended before (``G26``).
SUCCESS = (0, int(ErrorCode.DUPLICATE_SEQUENCE_NUMBER))


class PartitionAppender:
    """Appends to the partitions of this handler."""

    def __init__(
        self,
        responses: ResponseWriter,
        guards: Iterator[int],
        now_ns: Callable[[], int],
        write_failed: Callable[[OwnedPartition, LogWriteFailed], None],
    ) -> None:
        """``write_failed`` is called for every failed write to a log."""
        self.records_appended = 0
        self.bytes_appended = 0
        self.commits = 0
        self.commit_ns = 0
        #: By row, the partitions with staged batches. Always the same object.
        self.dirty: dict[int, OwnedPartition] = {}
        #: Responds to the ``ring_appends`` of a partition, with its error and the time: `RingProduces.complete`.
        self.complete_ring: Callable[[OwnedPartition, int, int], None] = _nothing_to_complete
        self._waiting: list[Deferred] = []
        self._responses = responses
        self._write_failed = write_failed
        self._guards = VerificationGuards(guards)
        self._now_ns = now_ns

    def append(
        self,
        owned: OwnedPartition,
        view: memoryview,
        place: tuple[int, int, int],
        callback: AppendCallback,
        guard: int,
        validated: Validated | None = None,
    ) -> int | None:
        """Stage the batch at ``place`` (offset, size, Produce version), or detect that it is already appended.

        Return the guard that the batch needs to be appended; TO_BE_VALIDATED[0] if its log must validate it first
        (``validated``); or None: then ``callback`` is called, now or at the commit.
        """
        offset, size, version = place
        batch = view[offset : offset + max(size, 0)]
        header = read_header(batch)
        note = NOT_APPENDED if header is None else header.base_offset
        if note > NOT_APPENDED:
            owned.callbacks.append((callback, note, -1, batch))
            self.dirty[owned.row] = owned
            return None
        if note < NOT_APPENDED:
            callback(REFUSED - note, -1, -1)
            return None
        # `validate` expects the base offset as clients send it, and no transactional bit.
        error = validate(batch, None if header is None else _as_sent(header, guard), version)
        base_offset = time_ms = -1
        if error == 0 and header is not None and guard:
            error, number = self._guards.validate(owned.row, owned.log, header, version, guard)
            if error == NEEDS_VERIFICATION:
                return number
        if error == 0 and header is not None:
            error, base_offset, time_ms = owned.log.stage(batch, header, validated=validated)
            if error == TO_BE_VALIDATED[0]:
                return error
            if error == 0 and time_ms >= 0:
                # With LogAppendTime the log has staged a copy; the note still belongs in the request's memory.
                write_note(view, offset, base_offset)
        if error in SUCCESS:
            owned.callbacks.append((callback, base_offset, time_ms, batch))
            self.dirty[owned.row] = owned
        else:
            note_rejection(view, offset, size, error)
            callback(error, -1, -1)
        return None

    def append_own(self, owned: OwnedPartition, batch: memoryview, callback: AppendCallback) -> None:
        """Stage a batch of this process; ``callback`` is called when it is committed or has failed."""
        error, base_offset, time_ms = owned.log.stage(batch, unpack_header(batch), is_own=True)
        if error in SUCCESS:
            owned.callbacks.append((callback, base_offset, time_ms, batch))
            self.dirty[owned.row] = owned
        else:
            callback(error, -1, -1)

    def append_marker(self, owned: OwnedPartition, marker: Marker, callback: AppendCallback) -> None:
        """Stage the end of a transaction; ``callback`` is called when it is committed or has failed."""
        error, base_offset, _ = owned.log.stage_marker(
            marker.producer_id,
            marker.epoch,
            marker.coordinator_epoch,
            commit=marker.commit,
            transaction_version=marker.transaction_version,
        )
        if error:
            callback(error, -1, -1)
            return
        self._guards.forget(owned.row, marker.producer_id)
        owned.callbacks.append((callback, base_offset, -1, memoryview(bytearray(NOTE.size))))
        self.dirty[owned.row] = owned

    def counters(self) -> dict[str, int]:
        """Return the counters since the start, by metric name."""
        return {
            "records_appended": self.records_appended,
            "bytes_appended": self.bytes_appended,
            "commits": self.commits,
            "commit_ns": self.commit_ns,
        }

    def next_commit(self) -> Deferred:
        """Return a Deferred that completes at the next commit."""
        self._waiting.append(Deferred())
        return self._waiting[-1]

    def commit(self) -> list[int]:
        """Commit and publish all staged batches, and respond. Return the rows with moved ends."""
        rows = []
        # The callbacks may stage further batches, for the next call.
        dirty = list(self.dirty.items())
        self.dirty.clear()
        throttled: bool | None = None
        for row, owned in dirty:
            log = owned.log
            before = log.log_end_offset, log.size_bytes
            begun_ns, error = self._now_ns(), 0
            try:
                if log.commit():
                    owned.publish()
            except LogWriteFailed as failure:
                self._write_failed(owned, failure)
                error = int(ErrorCode.KAFKA_STORAGE_ERROR)
            except Exception:
                # An internal error between memory and file: the staged batches are in doubt, the published ones are
                # not.
                logger.exception("the commit to %s failed", log.directory)
                log.reject_everything()
                error = int(ErrorCode.KAFKA_STORAGE_ERROR)
            now_ns = self._now_ns()
            self.commit_ns += now_ns - begun_ns
            rows.append(row)
            self.commits += 1
            records, size_bytes = log.log_end_offset - before[0], log.size_bytes - before[1]
            self.records_appended += records
            self.bytes_appended += size_bytes
            if records > 0:
                owned.writer.count_appended(records, size_bytes)
            self.complete_ring(owned, error, now_ns)
            if owned.fast_appends:
                if throttled is None and (whose := owned.fast_appends[0][0].quotas) is not None:
                    throttled = _charge_staged(whose, [each.fast_appends for _, each in dirty], now_ns)
                self._complete_fast(owned, error, now_ns, throttled)
            if owned.callbacks:
                self._complete(owned, error)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.complete(True)
        return rows

    def _complete(self, owned: OwnedPartition, error: int) -> None:
        """Respond to the general requests of a partition after its commit, or after a failed one."""
        callbacks, owned.callbacks = owned.callbacks, []
        for callback, base_offset, time_ms, batch in callbacks:
            try:
                if error and base_offset >= owned.published_end:
                    write_note(batch, 0, REFUSED - error)
                    callback(error, -1, -1)
                else:
                    callback(0, base_offset, time_ms)
            except Exception:
                # Callbacks handle their own errors; one that does not must not block the other responses.
                logger.exception("a response for %s failed", owned.log.directory)

    def _complete_fast(self, owned: OwnedPartition, error: int, now_ns: int, throttled: bool | None) -> None:
        """Respond to the fast requests of a partition after its commit, or after a failed one.

        ``throttled``: whether any of their clients is to be throttled; None: no quota is in force.
        """
        is_charged = throttled is not None
        appends, owned.fast_appends = owned.fast_appends, []
        start_offset = owned.log.log_start_offset
        try_put = self._responses.try_put
        view = self._responses.view
        for request, cached, header, base_offset, batch in appends:
            try:
                records = records_of(header, batch)
                if error and base_offset >= owned.published_end:
                    write_note(batch, 0, REFUSED - error)
                    if is_charged and cached.acks:
                        self._note_charged(request)
                    self.reject_fast(request, cached, records, error)
                    continue
                if not cached.acks:
                    self._responses.no_response(request, now_ns, now_ns, ResponseFacts(0, records, cached.about))
                    continue
                template = cached.template
                at = -1 if throttled else try_put(request, now_ns, template.size_bytes, records, cached.tail)
                if at >= 0:
                    template.fill_into(view, at, request.correlation_id, 0, (base_offset, -1, start_offset))
                else:
                    if is_charged:
                        self._note_charged(request)
                    wire = template.fill(request.correlation_id, 0, base_offset, -1, start_offset)
                    self._responses.send(request, now_ns, now_ns, wire, ResponseFacts(0, records, cached.about))
            except Exception:
                logger.exception("closing the connection of a Produce to %s, its response failed", owned.log.directory)
                self._responses.close_connection(request, now_ns)

    def _note_charged(self, request: Request) -> None:
        whose = request.quotas
        self._responses.note_charged(request, 0 if whose is None else whose.batch_ms)

    def reject_fast(self, request: Request, cached: PlainProduce, records: Records, error: int) -> None:
        """Respond to a fast request with an error; without acks its connection is closed instead (``C13``)."""
        now_ns = self._now_ns()
        facts = ResponseFacts(error, records, cached.about)
        if cached.acks:
            wire = cached.template.fill(request.correlation_id, error, -1, -1, -1)
            self._responses.send(request, now_ns, now_ns, wire, facts)
        else:
            self._responses.close_connection(request, now_ns, facts)


def _nothing_to_complete(_owned: OwnedPartition, _error: int, _now_ns: int) -> None:
    pass


def _as_sent(header: BatchHeader, guard: int) -> BatchHeader:
    """Return the header as the client sent it, without the transactional bit."""
    attributes = header.attributes & ~TRANSACTIONAL_BIT if guard else header.attributes
    return header._replace(base_offset=0, attributes=attributes)


def _charge_staged(first: ClientSensors, batches: Sequence[FastAppends], now_ns: int) -> bool:
    """Charge `ClientSensors.staged` of this pass's requests; return whether a client is throttled. HOT.

    The time for handling and committing them is shared equally: charging each separately costs more than the precision
    is worth. Requests without a response are charged when they end (`E13`).

    ``first``: the client of one of them. There is rarely another, and a search for others is most of the cost.
    """
    number = sum([len(appends) for appends in batches])
    clients: Sequence[ClientSensors] = (first,)
    if len(first.staged) < number:
        clients = list({request.quotas for appends in batches for request, *_ in appends if request.quotas is not None})
        number = sum([len(whose.staged) for whose in clients])
    book, throttled = first.book, False
    each_ns, book.spent_ns = divmod(book.spent_ns + now_ns - book.mark_ns, max(1, number))
    book.mark_ns = now_ns
    for whose in clients:
        sizes = whose.staged
        if sizes and whose.record_responses(len(sizes), sum(sizes), each_ns * len(sizes), now_ns):
            throttled = True
        sizes.clear()
    return throttled
