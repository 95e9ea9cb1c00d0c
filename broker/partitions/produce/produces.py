"""The Produce requests of one handler: from memory to the partition's file, and the response after the commit.

Runs in handler processes. Two paths lead to the same append. The fast one is for a connection that keeps sending to one
partition: the bytes before the records are compared with those of its last request, and nothing is parsed. The general
one handles any request: several partitions, partitions of other handlers, errors, replays.

**Exactness.** The base-offset field of each batch, in the request's own memory, is the owner's note of the batch's
outcome. It is written before the records are committed, and `NOTED` in the envelope marks it as a note instead of the
client's own value. A replacement of the owner first rolls back every note at or above the published end; then a
remaining note means "committed, at this offset", or below -1 "rejected, with this error", and no note means "append
it". A rejection is noted because its client may have sent the records again before the request is read a second time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rotunda.broker.errors import InvalidReceive
from rotunda.broker.ipc.peer_channel import POISON, PRODUCE_PART, PeerMessage, Peers
from rotunda.broker.ipc.request import NOTED, STATE_OFFSET, Request
from rotunda.broker.ipc.request_facts import RecordsCount, records_of, subject
from rotunda.broker.ipc.response_writer import ResponseFacts, ResponseWriter
from rotunda.broker.log.validation.append_limits import TO_BE_VALIDATED
from rotunda.broker.partitions.owned_partition import AppendCallback
from rotunda.broker.partitions.produce.append_notes import (
    NOT_APPENDED,
    REFUSED,
    note_rejection,
    noted_place,
    noted_rejection,
    write_note,
)
from rotunda.broker.partitions.produce.cached_produce import CachedProduce
from rotunda.broker.partitions.produce.part_checks import PartChecks, ProduceClient
from rotunda.broker.partitions.produce.partition_appender import SUCCESS, PartitionAppender
from rotunda.broker.partitions.produce.produce import (
    ERRORS_WITH_RECORD_DETAILS,
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    STORAGE_ERROR,
    Produce,
    ProducePart,
    is_transactional,
)
from rotunda.broker.partitions.produce.record_errors import NO_ERRORS, PartErrors, keyless, out_of_range, too_large
from rotunda.broker.partitions.produce.sliced_validation import Append, SlicedValidation
from rotunda.broker.partitions.produce.verification import (
    NEEDS_VERIFICATION,
    TransactionalParts,
)
from rotunda.broker.partitions.request_cache import RequestCache, RequestCaches
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.headers import RequestHeader, parse_header
from rotunda.broker.protocol.messages.produce import Part, ProduceRequest, parse_produce
from rotunda.broker.records.record_batch import BATCH_HEADER_BYTES, unpack_header, validate
from rotunda.broker.records.record_reader import ReadAllowance
from rotunda.broker.scheduling.slices import Slices, Work
from rotunda.broker.scheduling.task_queues import RequestIdentity, TaskQueues
from rotunda.broker.steps import ELEMENTS_AT_ONCE
from rotunda.shm.words import words_of

if TYPE_CHECKING:
    from rotunda.broker.ipc.poison_requests import PoisonRequests
    from rotunda.broker.partitions.partition_manager import PartitionManager
    from rotunda.broker.partitions.transaction_messages import VerifyMembership

#: Errors that the fast path leaves to the general one, which finds the same error again.
_NOT_FAST = ERRORS_WITH_RECORD_DETAILS | {TO_BE_VALIDATED[0]}

#: Of one request's parts with slow validation, this many run at a time, and none starts after this time.
MOST_UNDER_WAY = 16
LONGEST_NS = 1_000_000_000


class Produces:
    """Appends the parts of Produce requests for this handler's partitions and forwards the others to their owners."""

    def __init__(
        self,
        partitions: PartitionManager,
        appends: PartitionAppender,
        ways: tuple[ResponseWriter, Slices, Callable[[Request, Exception], None]],
        peers: Peers,
        poison: PoisonRequests,
        verify_membership: VerifyMembership,
        caches: RequestCaches,
    ) -> None:
        """Use the last element of ``ways`` to close the connection of a request that cannot be parsed."""
        responses, slices, self._close_faulty = ways
        now_ns = partitions.clock.monotonic_ns
        self._appends = appends
        self._partitions, self._metadata = partitions, partitions.metadata
        self._responses = responses
        self._checks = PartChecks(partitions)
        self._peers, self._poison = peers, poison
        self._now_ns = now_ns
        self._words = words_of(responses.view, 0, responses.view.nbytes)
        self._slices = slices
        self._queues = TaskQueues("PRODUCE", slices, now_ns)
        self._validation = SlicedValidation(appends, partitions.owned, self._checks, slices, now_ns)
        self.cache: RequestCache[CachedProduce] = caches.open(is_free=self._is_free)
        self._dirty = appends.dirty
        self._pending: dict[int, Produce] = {}
        self._tokens = peers.new_tokens()
        self._transactional = TransactionalParts(self._metadata, verify_membership, self._try_part, self._reject_part)
        self.verify = self._transactional.verify

    def log_start_offset(self, row: int) -> int:
        """Return the log start offset of a partition, as published by its owner."""
        return self._partitions.table.read_start(row)

    def try_fast(self, request: Request) -> bool:
        """Stage a request equal to a cached one (`RequestCache.find`) except for its records; False if none matches."""
        found = self.cache.find(request)
        if found is None or request.is_noted:
            return False
        cached, batch = found
        if cached.quotas is not request.quotas:
            self.cache.forget(request.connection_id)
            return False
        header = unpack_header(batch)
        if header[0] != 0:
            # Perhaps a note that a predecessor did not mark as one before it died: the general path handles it.
            return False
        error = validate(batch, header, request.api_version)
        if error == 0:
            owned = cached.owned
            error, base_offset, _ = owned.log.stage(batch, header)
            if error == 0:
                # Staging has written the base offset into the batch, which is the note; this marks it as one.
                self._words[(request.envelope_at + STATE_OFFSET) >> 3] = NOTED
            if error in SUCCESS:
                owned.fast_appends.append((request, cached, header, base_offset, batch))
                self._dirty[owned.row] = owned
                if cached.staged is not None:
                    cached.staged.append(request.size_bytes)
                return True
        if error in _NOT_FAST:
            # Nothing is staged or noted. The general path finds the invalid records, or validates in slices.
            return False
        write_note(batch, 0, REFUSED - error)
        self._words[(request.envelope_at + STATE_OFFSET) >> 3] = NOTED
        self._appends.reject_fast(request, cached, records_of(header, batch), error)
        return True

    def handle(self, request: Request) -> None:
        """Handle any request. Raises InvalidReceive when its header is malformed."""
        header = parse_header(request.view, request.start, request.end)
        produce = Produce(request, self._responses, self._slices, self._now_ns, self._errors)

        def abandon() -> None:
            self._pending.pop(produce.token, None)
            produce.abandon()

        def failed() -> None:
            abandon()
            self._responses.close_connection(request, self._now_ns())

        work = self._begin_parts(produce, header)
        try:
            self._queues.take(request.connection_id, RequestIdentity(request.identity, header.client_id), work, failed)
        except Exception:
            abandon()
            raise
        if self._queues.has(request.connection_id):
            # Its next requests use the general path too, to preserve their order.
            self.cache.forget(request.connection_id)

    def receive_peer_part(self, source: int, message: PeerMessage, view: memoryview, callback: AppendCallback) -> None:
        """Append a part received by another handler; ``callback`` sends the outcome back, now or later."""

        def settled(number: int | None) -> None:
            if number is not None:
                callback(NEEDS_VERIFICATION, number, -1)

        place = message.address, message.size, message.argument
        whose = RequestIdentity((-1 - source, message.token), "")
        error = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        key = -1 - source, message.row
        self._validation.append(Append(key, message.row, view, place, message.guard, callback, settled, whose, error))

    def receive_peer_reply(self, message: PeerMessage) -> None:
        """Complete a part with its owner's response; a response to a predecessor's request is ignored."""
        produce = self._pending.get(message.token)
        if produce is None:
            return
        if message.error_code == POISON:
            request = produce.drop()
            owner = self._partitions.owner_of(message.row)
            request.is_noted = True
            self._poison.drop(request, self._now_ns(), owner)
            message = message._replace(error_code=int(ErrorCode.UNKNOWN_SERVER_ERROR))
        if produce.has_outcome(message.part):
            return
        part = produce.forwarded[message.part]
        if part.is_transactional:
            if not self._transactional.tried(part, message.error_code, message.base_offset):
                return
        elif message.error_code == NEEDS_VERIFICATION:
            return
        self._done(part, message.error_code, message.base_offset, message.time_ms, message.argument)

    def _done(
        self, part: ProducePart, error: int, base_offset: int = -1, time_ms: int = -1, log_start_offset: int = -1
    ) -> None:
        """Record the outcome of a part."""
        produce = part.produce
        produce.part_done(part.index, part.part, error, base_offset, time_ms, log_start_offset)
        if produce.complete:
            self._pending.pop(produce.token, None)

    def _begin_parts(self, produce: Produce, header: RequestHeader) -> Work:
        """Read a request, then handle its parts one by one.

        Nothing is appended before it is read completely, so after a death it is read again. Parts with slow validation:
        only a few run at a time, and those not started after `LONGEST_NS` are rejected, so that the client sends them
        again. Not in a repeated request: a predecessor may have forwarded them to another owner.
        """
        request = produce.request
        try:
            body = parse_produce(request.view, request.api_version, header.body_offset, request.end)
        except InvalidReceive as failure:
            produce.abandon()
            self._close_faulty(request, failure)
            return
        yield from self._begin(produce, body)
        view, last_ns, error = request.view, self._now_ns() + LONGEST_NS, 0
        client = self._checks.client(request, body, header.client_id)
        for index, part in enumerate(body.parts):
            error = noted_rejection(view, part.records_offset, part.records_size)
            if index:
                is_slow = self._checks.is_slow(part)
                yield produce.next_outcome(index, MOST_UNDER_WAY) if is_slow else None
                if is_slow and not request.is_noted and self._now_ns() > last_ns:
                    error = int(ErrorCode.REQUEST_TIMED_OUT)
            exists = noted_place(view, part.records_offset, part.records_size) > NOT_APPENDED
            # An appended part is not rejected because of later settings: its client might send it again.
            error = error or (self._checks.unknown(part) if exists else self._checks.of(part, client))
            if error:
                note_rejection(view, part.records_offset, part.records_size, error)
                produce.part_done(index, part, error, -1, -1, -1)
                continue
            accepted = self._produce_part(produce, index, part, body.transactional_id)
            if accepted.is_transactional:
                self._transactional.enqueue(accepted)
            else:
                self._try_part(accepted)
        produce.all_parts_begun()
        if len(body.parts) == 1 and not error and not self._queues.has(request.connection_id):
            self._keep(request, body.parts[0], body, client)

    def _begin(self, produce: Produce, body: ProduceRequest) -> Work:
        """Count the records of a request for the request log; from then on its base offsets are notes."""
        request, count = produce.request, RecordsCount()
        view = request.view
        for number, part in enumerate(body.parts, 1):
            offset, size = part.records_offset, part.records_size
            count.add(unpack_header(view, offset) if size >= BATCH_HEADER_BYTES else None, size)
            if size >= BATCH_HEADER_BYTES and not request.is_noted:
                write_note(view, offset, NOT_APPENDED)
            if not number % ELEMENTS_AT_ONCE:
                yield None
        self._words[(request.envelope_at + STATE_OFFSET) >> 3] = NOTED
        first = body.parts[0] if body.parts else None
        row = -1 if first is None else self._partitions.row_of(first.topic_name, first.topic_id, first.partition)
        about = subject(row, len(body.parts), acks=body.acks)
        produce.begin(body.acks, len(body.parts), ResponseFacts(records=count.records, about=about))

    def _errors(self, request: Request, part: Part, error: int, allowance: ReadAllowance) -> PartErrors:
        """Return the records of a part that caused its rejection with one of `ERRORS_WITH_RECORD_DETAILS`."""
        topic = self._checks.topic(part)
        if topic is None:
            return NO_ERRORS
        if error == STORAGE_ERROR:
            return PartErrors(self._partitions.storage.message(topic.partitions[part.partition].row))
        config = self._metadata.log_config(topic)
        partition = f"{topic.name}-{part.partition}"
        batch = request.view[part.records_offset : part.records_offset + max(part.records_size, 0)]
        if error == MESSAGE_TOO_LARGE:
            return too_large(batch, partition, config)
        if error == INVALID_TIMESTAMP:
            now_ms = self._partitions.clock.wall_ms()
            oldest_ms = now_ms - config.message_timestamp_before_max_ms
            newest_ms = now_ms + config.message_timestamp_after_max_ms
            return out_of_range(batch, request.api_version, allowance, oldest_ms, newest_ms)
        return keyless(batch, request.api_version, allowance, partition) if config.compacts else NO_ERRORS

    def _produce_part(self, produce: Produce, index: int, part: Part, transactional_id: str | None) -> ProducePart:
        """Return an accepted part, in its transaction if it has one."""
        topic = self._checks.topic(part)
        assert topic is not None  # noqa: S101 - `PartChecks.of` has looked it up
        _, row, owner = topic.partitions[part.partition]
        accepted, has_header = ProducePart(produce, index, part, row, owner), part.records_size >= BATCH_HEADER_BYTES
        if transactional_id is not None and has_header and is_transactional(produce.request.view, part.records_offset):
            accepted.begin_transaction(transactional_id, topic.name)
        return accepted

    def _try_part(self, part: ProducePart) -> None:
        """Append a part to its log in this process, or forward it to its owner, with its current guard."""
        if part.owner != self._partitions.index:
            self._forward(part)
            return
        produce, request, row = part.produce, part.produce.request, part.row
        produce.hold.readers += 1

        def callback(error: int, base_offset: int, time_ms: int) -> None:
            self._done(part, error, base_offset, time_ms, self.log_start_offset(row))

        def settled(number: int | None) -> None:
            produce.hold.readers -= 1
            if part.is_transactional:
                error, guard = (0, -1) if number is None else (NEEDS_VERIFICATION, number)
                self._transactional.tried(part, error, guard)

        place = (part.part.records_offset, part.part.records_size, request.api_version)
        whose, error = RequestIdentity(request.identity, ""), int(ErrorCode.KAFKA_STORAGE_ERROR)
        key = request.connection_id, row
        self._validation.append(Append(key, row, request.view, place, part.guard, callback, settled, whose, error))
        if self._validation.has(key):
            self.cache.forget(request.connection_id)

    def _reject_part(self, part: ProducePart, error: int) -> None:
        note_rejection(part.produce.request.view, part.part.records_offset, part.part.records_size, error)
        self._done(part, error)

    def _forward(self, part: ProducePart) -> None:
        """Forward a part to its owner, which appends it from the request's memory."""
        produce, request = part.produce, part.produce.request
        if part.part.records_size < BATCH_HEADER_BYTES:
            self._done(part, INVALID_RECORD)
            return
        if produce.token < 0:
            produce.token = next(self._tokens)
            self._pending[produce.token] = produce
        message = PeerMessage(
            kind=PRODUCE_PART,
            part=part.index,
            token=produce.token,
            area=request.area,
            address=part.part.records_offset,
            size=part.part.records_size,
            row=part.row,
            argument=request.api_version,
            guard=part.guard,
        )
        produce.forwarded[part.index] = part
        hold = produce.hold
        self._peers.send(part.owner, message, lambda ring: hold.peers.append((ring, ring.position)))

    def _is_free(self, connection: int, cached: CachedProduce) -> bool:
        """Return whether no earlier batch of a connection for that partition is still being validated."""
        return not self._validation.has((connection, cached.owned.row))

    def _keep(self, request: Request, part: Part, body: ProduceRequest, client: ProduceClient) -> None:
        """Cache a request for the fast path, if the fast path could handle it."""
        topic = self._checks.topic(part)
        if topic is None or body.transactional_id is not None or part.records_size < BATCH_HEADER_BYTES:
            return
        if request.session.is_faulty or self._checks.of(part, client._replace(client_id="")):
            return
        owned = self._partitions.owned.get(row := topic.partitions[part.partition].row)
        if self._validation.has((request.connection_id, row)):
            return
        if owned is None or owned.log.config.message_timestamp_type != "CreateTime":
            return
        cached = CachedProduce(request, part, body.acks, owned, self._partitions.index)
        self.cache.keep(request.connection_id, cached)
