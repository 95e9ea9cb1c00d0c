"""Reads responses from the response rings and attaches them to channels in the order of their requests.

Runs in processor processes. Targets respond in any order; a channel's responses are sent in request order, by our own
sequence numbers (``D10``, ``D11``). An early response is copied out of the ring and held. A second response to the same
request, and any response to a closed connection, is dropped (``B21``): replaced targets may respond twice. A Fetch
response whose records were deleted, with their topic or by retention, cannot be sent any more: its request is resent to
its target, which then responds for that partition.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from rotunda.broker.ipc.request_channel import (
    CLOSE_CONNECTION,
    DELAYED,
    FAILED,
    RANGE,
    RESPONSE_TO_FACTS,
    SEND,
    THROTTLED,
    RequestChannel,
)
from rotunda.broker.ipc.segment_file_cache import OpenFile, SegmentFiles
from rotunda.broker.native import compiled
from rotunda.broker.network.processor.channel import Channel, Completion, Envelope, FileSend, HeldResponse, Piece
from rotunda.broker.network.processor.kept_requests import OWN_BYTES, KeptRequests, is_kept
from rotunda.broker.network.processor.throttling.delayed_responses import DelayedResponses
from rotunda.broker.network.processor.throttling.mute_state import MuteCause
from rotunda.broker.network.processor.throttling.retry_storms import RetryStorms
from rotunda.broker.network.processor.throttling.throttled_channels import ThrottledChannels
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.shm.layout import RESPONSE_ENVELOPE
from rotunda.shm.recorder_layout import HELD_BACK_BY, THROTTLED_BY_MASK
from rotunda.shm.rings.ring import RingConsumer

if TYPE_CHECKING:
    from rotunda.broker.network.accounting.completed_requests import CompletedRequests

logger = logging.getLogger(__name__)

_ENVELOPE_BYTES, _RANGE_BYTES = RESPONSE_TO_FACTS.size, RANGE.size
_unpack_envelope, _iterate_ranges = RESPONSE_TO_FACTS.unpack_from, RANGE.iter_unpack

#: Offset of the throttle time in the facts of a response.
_THROTTLE_MS_AT = RESPONSE_ENVELOPE.offset("throttle_ms") - RESPONSE_ENVELOPE.offset("received_ns")
_unpack_int32 = Struct("@i").unpack_from
#: Offset of the time at which the target read the request: a fault was in force then, or is newer.
_DEQUEUED_NS_AT = RESPONSE_ENVELOPE.offset("dequeued_ns") - RESPONSE_ENVELOPE.offset("received_ns")
#: Offset of the completion time in the facts: the end of the delay of a held back response.
_COMPLETE_NS_AT = RESPONSE_ENVELOPE.offset("response_complete_ns") - RESPONSE_ENVELOPE.offset("received_ns")
_INT64: Final = Struct("@q")
_unpack_int64 = _INT64.unpack_from
#: Offset of the cause of a throttle or delay in the facts.
_THROTTLED_BY_AT = RESPONSE_ENVELOPE.offset("throttled_by") - RESPONSE_ENVELOPE.offset("received_ns")
_INT16: Final = Struct("@h")

#: RANGE, field by field.
Range = tuple[int, int, int, int, int]

#: First bytes of a request that may be resent after its response: it changes nothing.
_FETCH = int(ApiKey.FETCH).to_bytes(2, "big")
#: The most consecutive resends for one connection.
MOST_RESENDS = 3

#: Responses read from one ring in one iteration of the loop.
BATCH = 512

#: A response to the only request in flight on its connection, with the facts to record after writing.
LoneResponse = tuple[Channel, memoryview, Completion]

#: A response that compiled code has sent in part or not at all: its bytes, how many of them precede a part of a file,
#: that part as file, position and length, and its facts.
SentPart = tuple[bytes, int, OpenFile, int, int, Completion]

#: Records a request whose response has just been written: its channel, its target's facts, and the time in ns.
Finish = Callable[[Channel, Completion, int], None]

#: Closes the connection affected by the current exception; None: it is closed already (``B22``).
Fault = Callable[["Channel | None"], None]


class ResponseReader:
    """The consuming ends of the processor's response rings."""

    def __init__(
        self,
        channel: RequestChannel,
        processor: int,
        kept: KeptRequests,
        output_max_bytes: int,
        now_ns: Callable[[], int],
        storms: RetryStorms,
    ) -> None:
        self._view = channel.view
        self._kept = kept
        self._output_max_bytes = output_max_bytes
        self._channel, self._processor = channel, processor
        self._by_target: dict[int, RingConsumer] = {}
        #: The rings read since the last `release`.
        self._unreleased: list[RingConsumer] = []
        self.grow()
        self._files = SegmentFiles()
        self.throttled = ThrottledChannels()
        self.delayed = DelayedResponses()
        self.storms = storms
        self._now_ns = now_ns
        self.responses_dropped = 0
        #: Responses received so far, to be written or to closed connections; second responses are not counted.
        self.responses_received = 0
        #: Of the last `read`: the responses for `send_lone`.
        self.lone: list[LoneResponse] = []
        #: (connection id, response) of closed connections.
        self.orphans: list[tuple[int, Completion]] = []
        #: (channel, sequence) of requests with an unsendable response, to be resent to their target.
        self.unsendable: deque[tuple[Channel, int]] = deque()
        #: Whether the last `read` left responses, for which no bell will ring.
        self.is_behind = False
        self.bytes_received = 0
        #: Takes and sends the usual responses, where there is compiled code.
        self._natively: Any = None
        self._finished: CompletedRequests | None = None
        self._add_lone: Finish | None = None

    def record_in(self, finished: CompletedRequests) -> None:
        """Have compiled code send the usual responses, and record their requests there."""
        if compiled is not None:
            self._natively = sender = compiled.ResponseSender()
            sender.clock_ns, sender.rows, sender.runs, sender.left = (
                self._now_ns,
                finished.completions,
                finished.runs,
                [],
            )
            sender.known_file, sender.attach, sender.failed = self._files.known, self._attach_rest, None
            self._finished, self._add_lone = finished, finished.add_lone

    def grow(self) -> None:
        """Read the responses of additional targets too, if there are any."""
        for target in self._channel.targets:
            if target not in self._by_target:
                self._by_target[target] = self._channel.response_consumer(self._processor, target)
        self._rings = list(self._by_target.values())

    def read(self, by_id: dict[int, Channel], fault: Fault) -> dict[int, Channel]:
        """Attach every published response to its channel and return the channels with output.

        Among them are channels with more than ``output.max.bytes`` of responses waiting for an earlier one. A response
        to the only request in flight on its connection is added to `lone` instead. An exception on one response affects
        no other channel: no ring yields a response twice. The pieces are views of the rings: write or copy them, then
        call ``release``, also when nothing is ready: dropped and held responses occupy the ring too, and a target may
        be waiting for room.
        """
        ready: dict[int, Channel] = {}
        if self.delayed.waiting:
            self._send_delayed(by_id, self._now_ns(), ready, fault)
        self.is_behind = False
        natively = self._natively
        for ring in self._rings:
            if natively is None:
                frames = ring.read(BATCH)
                count = len(frames)
            else:
                count = natively.read(ring, BATCH, by_id, ready)
                frames = natively.left
            if count:
                self._unreleased.append(ring)
                self.responses_received += count
                self.is_behind |= count == BATCH
            if frames:
                self._take(frames, by_id, ready, fault)
                frames.clear()
        if natively is not None:
            self.bytes_received += natively.bytes
            natively.bytes = 0
        return ready

    @property
    def has_lone(self) -> bool:
        """Whether the last `read` left responses for `send_lone`."""
        return bool(self.lone) or (self._natively is not None and self._natively.count > 0)

    def _take(
        self, frames: list[tuple[int, int, int]], by_id: dict[int, Channel], ready: dict[int, Channel], fault: Fault
    ) -> None:
        """Attach the responses of one ring to their channels, or add them to `lone`. HOT."""
        view, find, lone, now_ns = self._view, by_id.get, self.lone, self._now_ns()
        bytes_received = 0
        for at, _, _ in frames:
            envelope = _unpack_envelope(view, at)
            connection, sequence, size, ranges, kind, facts = envelope
            channel = find(connection)
            if channel is None or sequence != channel.next_response or kind or channel.held:
                self._try_attach(channel, at, envelope, now_ns, (ready, fault))
                continue
            start = at + _ENVELOPE_BYTES
            if ranges:
                try:
                    channel.out += self._parts(start, size, ranges)
                except OSError:
                    self._try_attach(channel, at, envelope, now_ns, (ready, fault))
                    continue
                channel.resend_count = 0
            channel.next_response = next_response = sequence + 1
            if channel.repeatable:
                if channel.kept_bytes > OWN_BYTES:
                    self._kept.drop(channel, sequence)
                elif (request := channel.repeatable.pop(sequence, None)) is not None:
                    channel.kept_bytes -= len(request[2])
            bytes_received += size
            if not ranges:
                piece = view[start : start + size]
                if next_response == channel.next_sequence and not (channel.completions or channel.muted):
                    lone.append((channel, piece, (facts, now_ns)))
                    continue
                channel.out.append(piece)
            channel.completions.append((facts, now_ns))
            ready[channel.fd] = channel
        self.bytes_received += bytes_received

    def _try_attach(
        self,
        channel: Channel | None,
        at: int,
        envelope: Envelope,
        now_ns: int,
        to: tuple[dict[int, Channel], Fault],
    ) -> None:
        """Attach a response outside the usual case. A fault affects no other channel."""
        ready, fault = to
        try:
            self._attach(channel, at, envelope, now_ns, ready)
        except Exception:
            fault(channel)

    def send_lone(self, ready: dict[int, Channel], finish: Finish, fault: Fault) -> None:
        """Write the lone responses. Unsent bytes are attached to their channel for the usual write. HOT."""
        now_ns, natively = self._now_ns, self._natively
        if natively is not None and self._finished is not None and natively.count:
            is_counted = finish != self._add_lone
            before = len(self._finished.completions)
            while natively.count:
                try:
                    natively.send(finish if is_counted else None, ready)
                except Exception:
                    fault(natively.failed)
            # `finish` counts by itself.
            self._finished.count += 0 if is_counted else len(self._finished.completions) - before
        lone, self.lone = self.lone, []
        for channel, piece, completion in lone:
            try:
                try:
                    sent = channel.send(piece)
                except OSError:
                    # Its buffer is full, or the connection is closed: the write of the rest will show that.
                    sent = 0
                if sent == len(piece):
                    finish(channel, completion, now_ns())
                    continue
            except Exception:
                fault(channel)
                continue
            channel.out.append(piece[sent:])
            channel.completions.append(completion)
            ready[channel.fd] = channel

    def _attach_rest(self, channel: Channel, parts: list[SentPart], sent: int, ready: dict[int, Channel]) -> None:
        """Attach responses of which ``sent`` bytes are written, for the usual write, before all others."""
        pieces: list[Piece] = []
        for inline, head, file, position, length, _ in parts:
            for piece in (inline[:head], FileSend(file, position, length) if length else b"", inline[head:]):
                size = piece.length if isinstance(piece, FileSend) else len(piece)
                if sent >= size:
                    sent -= size
                elif isinstance(piece, FileSend):
                    pieces.append(FileSend(file, position + sent, length - sent))
                    sent = 0
                else:
                    # A view, as from a ring: the write joins those that follow each other.
                    pieces.append(memoryview(piece)[sent:])
                    sent = 0
        channel.out[:0] = pieces
        channel.completions[:0] = [part[-1] for part in parts]
        ready[channel.fd] = channel

    def release(self) -> None:
        """Release the rings' memory to the targets."""
        if self._unreleased:
            for ring in self._unreleased:
                ring.release()
            self._unreleased.clear()

    def pending(self) -> bool:
        """Return whether there are unread responses."""
        return any(ring.pending() for ring in self._rings)

    def wait_ms(self, now_ns: Callable[[], int], most_ms: int) -> int:
        """Return how long the loop may sleep: until a delayed response or a throttled channel is due. HOT."""
        if not self.delayed.waiting and not self.throttled.ends:
            return most_ms
        return self.throttled.wait_ms(now_ns, self.delayed.wait_ms(now_ns, most_ms))

    def forget_unused(self, now_ns: int) -> None:
        """Close deleted segment files, and delete old failures. Called periodically."""
        self._files.forget_removed()
        self.storms.forget_quiet(now_ns)

    def _attach(
        self, channel: Channel | None, at: int, envelope: Envelope, now_ns: int, ready: dict[int, Channel]
    ) -> None:
        """Attach or drop a response: early, with file ranges, closing the connection, or unexpected."""
        connection, sequence, size, ranges, kind, facts = envelope
        if channel is None or not channel.next_response <= sequence < channel.next_sequence or sequence in channel.held:
            self._drop(channel, at, envelope, now_ns)
            return
        if kind & THROTTLED:
            kind -= THROTTLED
            self.throttled.begin(channel, now_ns, _unpack_int32(facts, _THROTTLE_MS_AT)[0])
            ready[channel.fd] = channel
        try:
            pieces = self._parts(at + _ENVELOPE_BYTES, size, ranges)
        except OSError as error:
            if self._resend_if_allowed(channel, sequence):
                self.responses_received -= 1
                return
            logger.warning("closing a connection, its response cannot be sent: %s", error)
            kind, pieces = CLOSE_CONNECTION, []
        self.bytes_received += size
        if kind & FAILED:
            kind -= FAILED
            if self.storms.are_watched and kind == SEND and not ranges and self.delayed.has_room:
                kind, facts = self._delay_if_repeated(channel, at, envelope, now_ns)
        if sequence != channel.next_response or kind & DELAYED:
            if kind & DELAYED:
                [struck_ns], [due_ns] = _unpack_int64(facts, _DEQUEUED_NS_AT), _unpack_int64(facts, _COMPLETE_NS_AT)
                self.delayed.add(connection, sequence, struck_ns, due_ns)
            kept: list[Piece] = [bytes(p) if isinstance(p, memoryview) else p for p in pieces]
            held_bytes = sum(p.length if isinstance(p, FileSend) else len(p) for p in kept)
            channel.held[sequence] = HeldResponse(kind, held_bytes, kept, (facts, now_ns))
            channel.held_bytes += held_bytes
            if channel.held_bytes > self._output_max_bytes:
                ready[channel.fd] = channel
            return
        channel.out.extend(pieces)
        self._respond(channel, kind, (facts, now_ns))
        self._release_held(channel)
        ready[channel.fd] = channel

    def _drop(self, channel: Channel | None, at: int, envelope: Envelope, now_ns: int) -> None:
        """Drop a response that is not expected."""
        connection, _, _, ranges, _, facts = envelope
        self.responses_dropped += 1
        if channel is None or channel.closing:
            self.orphans.append((connection, (facts, now_ns)))
        else:
            self.responses_received -= 1
        rows, path_at, _ = self._ranges(at + _ENVELOPE_BYTES, ranges)
        for _, inode, _, _, path_bytes in rows:
            self._files.discard(self._path(path_at, path_bytes), inode)
            path_at += path_bytes

    def _delay_if_repeated(self, channel: Channel, at: int, envelope: Envelope, now_ns: int) -> tuple[int, bytes]:
        """Return kind and facts of an error response, which may be delayed for its errors (`D22`)."""
        _, sequence, size, _, _, facts = envelope
        start = at + _ENVELOPE_BYTES
        delay_ns = self.storms.delay_ns(channel, sequence, facts, self._view[start : start + size], now_ns)
        return (DELAYED, _held_back(facts, now_ns + delay_ns)) if delay_ns else (SEND, facts)

    def _respond(self, channel: Channel, kind: int, completion: Completion) -> None:
        self._kept.drop(channel, channel.next_response)
        channel.next_response += 1
        channel.resend_count = 0
        channel.completions.append(completion)
        if kind == CLOSE_CONNECTION:
            # Later requests of the client are neither read nor answered: a response sent now would be matched to this
            # request.
            channel.closing = True
            channel.muted |= MuteCause.REFUSED
            self._kept.drop_all(channel)
            channel.forget_requests()

    def _release_held(self, channel: Channel) -> None:
        """Attach held responses that were waiting for the one just attached."""
        while not channel.closing:
            response = channel.held.get(channel.next_response)
            if response is None or response.kind & DELAYED:
                return
            del channel.held[channel.next_response]
            channel.held_bytes -= response.size
            channel.out.extend(response.pieces)
            self._respond(channel, response.kind, response.completion)

    def _send_delayed(self, by_id: dict[int, Channel], now_ns: int, ready: dict[int, Channel], fault: Fault) -> None:
        """Attach delayed responses that are due, and later ones that waited for them."""
        for connection, sequence in self.delayed.due(now_ns):
            channel = by_id.get(connection)
            response = None if channel is None else channel.held.get(sequence)
            if channel is None or response is None:
                continue
            try:
                facts = response.completion[0]
                if _unpack_int64(facts, _COMPLETE_NS_AT)[0] > now_ns:
                    facts = _complete(facts, now_ns)
                completion = facts, now_ns
                channel.held[sequence] = response._replace(kind=response.kind - DELAYED, completion=completion)
                self._release_held(channel)
                ready[channel.fd] = channel
            except Exception:
                fault(channel)

    def _resend_if_allowed(self, channel: Channel, sequence: int) -> bool:
        """Queue a request for resending if allowed; its client does not notice."""
        _, _, frame = channel.repeatable.get(sequence, (0, 0, b""))
        if not (is_kept(frame) and frame.startswith(_FETCH)) or channel.resend_count >= MOST_RESENDS:
            return False
        channel.resend_count += 1
        self.unsendable.append((channel, sequence))
        return True

    def _parts(self, at: int, size: int, ranges: int) -> list[Piece]:
        """Return a response as ring bytes and file ranges, in order. Raises OSError for a deleted file. HOT."""
        view = self._view
        if not ranges:
            return [view[at : at + size]] if size else []
        rows, path_at, inline_at = self._ranges(at, ranges)
        end = inline_at + size
        files, length_of_all = self._files, 0
        pieces: list[Piece] = []
        for inline_before, inode, position, length, path_bytes in rows:
            if inline_before:
                pieces.append(view[inline_at : inline_at + inline_before])
                inline_at += inline_before
            file = files.known(inode) or files.open(self._path(path_at, path_bytes), inode)
            path_at += path_bytes
            length_of_all += length
            pieces.append(FileSend(file, position, length))
        if inline_at < end:
            pieces.append(view[inline_at:end])
        self.bytes_received += length_of_all
        return pieces

    def _ranges(self, at: int, ranges: int) -> tuple[list[Range], int, int]:
        """Return the ranges of a response, the start of the first path, and the start of the inline bytes."""
        path_at = at + ranges * _RANGE_BYTES
        rows = list(_iterate_ranges(self._view[at:path_at]))
        return rows, path_at, path_at + sum([row[4] for row in rows])

    def _path(self, at: int, size: int) -> str:
        return str(self._view[at : at + size], "utf-8")


def _complete(facts: bytes, complete_ns: int) -> bytes:
    """Return the facts of a response with this completion time."""
    return facts[:_COMPLETE_NS_AT] + _INT64.pack(complete_ns) + facts[_COMPLETE_NS_AT + _INT64.size :]


def _held_back(facts: bytes, due_ns: int) -> bytes:
    """Return the facts of a response delayed until ``due_ns`` because of earlier failures."""
    facts = _complete(facts, due_ns)
    [by] = _INT16.unpack_from(facts, _THROTTLED_BY_AT)
    if by & THROTTLED_BY_MASK:
        return facts
    return facts[:_THROTTLED_BY_AT] + _INT16.pack(by | HELD_BACK_BY) + facts[_THROTTLED_BY_AT + _INT16.size :]
