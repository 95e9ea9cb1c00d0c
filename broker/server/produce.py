"""Produce: from the request's memory to the partition's file, and the answer once the records are committed.

Runs in handler processes. Two paths lead to the same append. The fast one is for a connection that keeps sending to
one partition: the bytes in front of the records are compared with those of its last request, and nothing is parsed.
The general one takes any request: several partitions, some of them another handler's, errors, replays.

**Exactness.** The base-offset field of each batch, in the request's own memory, is the note of what its owner did with
it. It is written before the records are committed, and `NOTED` in the envelope says that it is a note and not the
client's own value. A replacement of the owner first takes back every note at or above the published end; then a note
that is left means "committed, at this offset", or below -1 "refused, with this error", and its absence means "append
it". A refusal is noted because its client may have sent the records again before the request is read a second time.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING

from broker.protocol.error_codes import ErrorCode
from broker.protocol.headers import parse_header
from broker.protocol.messages.produce import Part, parse_produce
from broker.protocol.records import BATCH_HEADER_BYTES, read_header, unpack_header, validate
from broker.server.frame import NOTED, STATE_OFFSET, Frame
from broker.server.partition_appends import Answer, OwnedPartition
from broker.server.peers import PRODUCE_PART, PeerMessage, Peers
from broker.server.pending_produce import PendingProduce
from broker.server.remembered_request import RememberedRequest
from broker.server.response_writer import ReplyTo, ResponseWriter
from shm.words import words_of

if TYPE_CHECKING:
    from broker.server.broker_state import BrokerState
    from broker.server.metadata_cache import TopicInfo

#: The note in a batch's base-offset field. -1: its owner has not appended it.
NOTE = Struct(">q")
NOT_APPENDED = -1

#: A note of a refusal is this less the Kafka error code.
REFUSED = -1_000

#: Outcomes of staging that are answered as success: a duplicate was appended once already (``G26``).
_SUCCESS = (0, int(ErrorCode.DUPLICATE_SEQUENCE_NUMBER))

#: Connections whose last request is remembered.
MAX_REMEMBERED = 10_000


def write_note(view: memoryview, offset: int, note: int) -> None:
    """Store a note whole: packing it in place would show a 0 in between, which reads "appended at offset 0"."""
    view[offset : offset + NOTE.size] = NOTE.pack(note)


class ProducePath:
    """Appends what Produce requests bring for this handler's partitions and sends the rest to their owners."""

    def __init__(self, state: BrokerState, responses: ResponseWriter, peers: Peers, now_ns: Callable[[], int]) -> None:
        self.records_appended = 0
        self.bytes_appended = 0
        self.commits = 0
        self._state = state
        self._responses = responses
        self._peers = peers
        self._now_ns = now_ns
        self._words = words_of(state.heritage.rings.view, 0, state.heritage.rings.view.nbytes)
        self._remembered: dict[int, RememberedRequest] = {}
        self._dirty: dict[int, OwnedPartition] = {}
        self._pending: dict[int, PendingProduce] = {}
        self._tokens = peers.new_tokens()

    def forget_metadata(self) -> None:
        """Parse the next request of every connection anew: topics have changed."""
        self._remembered.clear()

    def try_fast(
        self, to: ReplyTo, version: int, correlation_id: int, view: memoryview, place: tuple[int, int, int]
    ) -> bool:
        """Stage a request that differs from the connection's last one in its records alone; False if it does not.

        ``place`` is (start of the request in ``view``, its end, offset of its envelope in the rings).
        """
        remembered = self._remembered.get(to[1])
        if remembered is None or remembered.version != version:
            return False
        batch = remembered.records(view, place[0], place[1])
        if batch is None:
            return False
        header = unpack_header(batch)
        if header[0] != 0:
            # Perhaps a note that a predecessor had no time to declare one: the general path knows.
            return False
        error = validate(batch, header, version)
        if error == 0:
            owned = remembered.owned
            error, base_offset, _ = owned.log.stage(batch, header)
            if error == 0:
                # Staging has written the base offset into the batch, which is the note; this says that it is one.
                self._words[(place[2] + STATE_OFFSET) >> 3] = NOTED
            if error in _SUCCESS:
                owned.fast_answers.append((to, remembered, correlation_id, base_offset, batch))
                self._dirty[owned.row] = owned
                return True
        write_note(batch, 0, REFUSED - error)
        self._words[(place[2] + STATE_OFFSET) >> 3] = NOTED
        self._refuse(to, remembered, correlation_id, error)
        return True

    def take(self, frame: Frame) -> None:
        """Take any request. Raises InvalidReceive when it is malformed."""
        view, version = frame.view, frame.api_version
        header = parse_header(view, frame.start, frame.end)
        request = parse_produce(view, version, header.body_offset, frame.end)
        if not frame.noted:
            for part in request.parts:
                if part.records_size >= BATCH_HEADER_BYTES:
                    write_note(view, part.records_offset, NOT_APPENDED)
            self._words[(frame.envelope_at + STATE_OFFSET) >> 3] = NOTED
        pending = PendingProduce(frame, request.acks, len(request.parts), self._responses, self._now_ns)
        try:
            for index, part in enumerate(request.parts):
                error = _noted_refusal(view, part) or self._refusal(
                    part, request.acks, request.transactional_id, header.client_id
                )
                if error:
                    _note_refusal(view, part.records_offset, part.records_size, error)
                    pending.part_done(index, part, error, -1, -1, -1)
                else:
                    self._take_part(pending, frame, index, part)
        except Exception:
            self._pending.pop(pending.token, None)
            pending.abandon()
            raise
        pending.all_parts_taken()
        if len(request.parts) == 1:
            self._remember(frame, request.parts[0], request.acks, request.transactional_id)

    def take_peer_part(self, message: PeerMessage, view: memoryview, answer: Answer) -> None:
        """Append a part that another handler received; ``answer`` sends the outcome back."""
        owned = self._state.owned.get(message.row)
        if owned is None:
            error = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            _note_refusal(view, message.address, message.size, error)
            answer(error, -1, -1)
        else:
            self._append(owned, view, (message.address, message.size, message.argument), answer)

    def take_peer_answer(self, message: PeerMessage) -> None:
        """Complete a part that its owner has answered; an answer for a predecessor's request has no taker."""
        pending = self._pending.get(message.token)
        if pending is None:
            return
        pending.forwarded_done(message.part, message.error_code, message.base_offset, message.time_ms, message.argument)
        if pending.complete:
            del self._pending[message.token]

    def commit(self) -> list[int]:
        """Commit everything staged, publish it, answer it. Return the rows whose ends have moved."""
        if not self._dirty:
            return []
        rows = []
        for row, owned in self._dirty.items():
            log = owned.log
            before = log.log_end_offset, log.size_bytes
            error = owned.commit()
            rows.append(row)
            self.commits += 1
            self.records_appended += log.log_end_offset - before[0]
            self.bytes_appended += log.size_bytes - before[1]
            if owned.fast_answers:
                self._answer_fast(owned, error)
            general, owned.answers = owned.answers, []
            for answer, base_offset, time_ms, batch in general:
                if error and base_offset >= log.log_end_offset:
                    write_note(batch, 0, REFUSED - error)
                    answer(error, -1, -1)
                else:
                    answer(0, base_offset, time_ms)
        self._dirty.clear()
        return rows

    def _answer_fast(self, owned: OwnedPartition, error: int) -> None:
        """Answer the fast requests of a partition that has been committed, or could not be."""
        answers, owned.fast_answers = owned.fast_answers, []
        start_offset = owned.log.log_start_offset
        try_begin = self._responses.try_begin
        view = self._responses.view
        now_ns = self._now_ns()
        for to, remembered, correlation_id, base_offset, batch in answers:
            if error and base_offset >= owned.log.log_end_offset:
                write_note(batch, 0, REFUSED - error)
                self._refuse(to, remembered, correlation_id, error)
                continue
            if not remembered.acks:
                self._responses.no_response(to, now_ns, now_ns)
                continue
            template = remembered.template
            at = try_begin(to, now_ns, template.size_bytes)
            if at >= 0:
                template.fill_into(view, at, correlation_id, 0, (base_offset, -1, start_offset))
            else:
                wire = template.fill(correlation_id, 0, base_offset, -1, start_offset)
                self._responses.send(to, now_ns, now_ns, wire)

    def _refuse(self, to: ReplyTo, remembered: RememberedRequest, correlation_id: int, error: int) -> None:
        """Answer a fast request with an error; without acks the connection is closed instead (``C13``)."""
        now_ns = self._now_ns()
        if remembered.acks:
            self._responses.send(to, now_ns, now_ns, remembered.template.fill(correlation_id, error, -1, -1, -1), error)
        else:
            self._responses.close_connection(to, now_ns)

    def _refusal(self, part: Part, acks: int, transactional_id: str | None, client_id: str) -> int:
        """Return the error that refuses a part before anything else is looked at, or 0."""
        if acks not in (-1, 0, 1):
            return int(ErrorCode.INVALID_REQUIRED_ACKS)
        if transactional_id is not None:
            return int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        topic = self._topic(part)
        if topic is None or not 0 <= part.partition < len(topic.partitions):
            unknown_id = part.topic_name is None and topic is None
            return int(ErrorCode.UNKNOWN_TOPIC_ID if unknown_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if topic.internal and client_id != "__admin_client":
            return int(ErrorCode.INVALID_TOPIC_EXCEPTION)
        if acks == -1 and self._state.metadata.log_config(topic).min_insync_replicas > 1:
            return int(ErrorCode.NOT_ENOUGH_REPLICAS)
        return 0

    def _topic(self, part: Part) -> TopicInfo | None:
        metadata = self._state.metadata
        if part.topic_name is not None:
            return metadata.topic(part.topic_name)
        return metadata.topic_by_id(part.topic_id or b"")

    def _take_part(self, pending: PendingProduce, frame: Frame, index: int, part: Part) -> None:
        topic = self._topic(part)
        assert topic is not None  # noqa: S101 - `_refusal` has looked it up
        _, row, owner = topic.partitions[part.partition]
        if owner != self._state.index:
            self._forward(pending, frame, index, (part, row, owner))
            return
        owned = self._state.owned.get(row)
        if owned is None:
            error = int(ErrorCode.KAFKA_STORAGE_ERROR)
            _note_refusal(frame.view, part.records_offset, part.records_size, error)
            pending.part_done(index, part, error, -1, -1, -1)
            return
        place = (part.records_offset, part.records_size, frame.api_version)

        def answer(error: int, base_offset: int, time_ms: int) -> None:
            pending.part_done(index, part, error, base_offset, time_ms, owned.log.log_start_offset)

        self._append(owned, frame.view, place, answer)

    def _append(self, owned: OwnedPartition, view: memoryview, place: tuple[int, int, int], answer: Answer) -> None:
        """Stage a batch at ``place`` (offset, size, Produce version), or find that it has been appended already."""
        offset, size, version = place
        batch = view[offset : offset + max(size, 0)]
        header = read_header(batch)
        note = NOT_APPENDED if header is None else header.base_offset
        if note > NOT_APPENDED:
            owned.answers.append((answer, note, -1, batch))
            self._dirty[owned.row] = owned
            return
        if note < NOT_APPENDED:
            answer(REFUSED - note, -1, -1)
            return
        # `validate` wants the base offset that clients send.
        error = validate(batch, None if header is None else header._replace(base_offset=0), version)
        base_offset = time_ms = -1
        if error == 0 and header is not None:
            error, base_offset, time_ms = owned.log.stage(batch, header)
            if error == 0 and time_ms >= 0:
                # With LogAppendTime the log has staged a copy; the note belongs here all the same.
                write_note(view, offset, base_offset)
        if error in _SUCCESS:
            owned.answers.append((answer, base_offset, time_ms, batch))
            self._dirty[owned.row] = owned
        else:
            _note_refusal(view, offset, size, error)
            answer(error, -1, -1)

    def _forward(self, pending: PendingProduce, frame: Frame, index: int, where: tuple[Part, int, int]) -> None:
        """Ask the owner of a part to append it from where it lies."""
        part, row, owner = where
        if part.records_size < BATCH_HEADER_BYTES:
            pending.part_done(index, part, int(ErrorCode.INVALID_RECORD), -1, -1, -1)
            return
        if pending.token < 0:
            pending.token = next(self._tokens)
            self._pending[pending.token] = pending
        message = PeerMessage(
            kind=PRODUCE_PART,
            part=index,
            token=pending.token,
            area=frame.area,
            address=part.records_offset,
            size=part.records_size,
            row=row,
            argument=frame.api_version,
        )
        pending.forwarded(index, part)
        hold = pending.hold
        self._peers.send(owner, message, lambda ring: hold.peers.append((ring, ring.position)))

    def _remember(self, frame: Frame, part: Part, acks: int, transactional_id: str | None) -> None:
        """Let the connection's next request take the fast path if this one could have."""
        topic = self._topic(part)
        if topic is None or transactional_id is not None or part.records_size < BATCH_HEADER_BYTES:
            return
        if self._refusal(part, acks, None, ""):
            return
        owned = self._state.owned.get(topic.partitions[part.partition].row)
        if owned is None or owned.log.config.message_timestamp_type != "CreateTime":
            return
        if len(self._remembered) >= MAX_REMEMBERED:
            self._remembered.clear()
        self._remembered[frame.to[1]] = RememberedRequest(frame, part, acks, owned)


def _noted_refusal(view: memoryview, part: Part) -> int:
    """Return the error with which a part has been refused before, or 0."""
    if part.records_size < BATCH_HEADER_BYTES:
        return 0
    note: int = NOTE.unpack_from(view, part.records_offset)[0]
    return REFUSED - note if note < NOT_APPENDED else 0


def _note_refusal(view: memoryview, offset: int, size: int, error: int) -> None:
    """Note that a part was refused, unless it has a note already; what is too short for one is refused for ever."""
    if size >= BATCH_HEADER_BYTES and NOTE.unpack_from(view, offset)[0] == NOT_APPENDED:
        write_note(view, offset, REFUSED - error)
