"""Reads requests from sockets into the rings: framing, the in-flight limit, and backpressure.

Runs in processor processes. Of a frame it reads the size, api key, version, correlation id and, for APIs that have one,
the routing key. A frame that cannot be sent on stays with its channel, which is muted for exactly that cause.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any

from rotunda.broker.clock import SystemClock
from rotunda.broker.errors import InvalidReceive
from rotunda.broker.ipc.request_channel import INLINE_REQUEST_BYTES
from rotunda.broker.native import compiled
from rotunda.broker.network.processor.authentication import Authentication
from rotunda.broker.network.processor.channel import (
    LARGE_READ_BYTES,
    SMALL_READ_BYTES,
    Channel,
    LargeReceive,
    ReadBlockedByWriteError,
)
from rotunda.broker.network.processor.foreign_protocols import describe_foreign
from rotunda.broker.network.processor.kept_requests import OWN_BYTES
from rotunda.broker.network.processor.memory_queue import MemoryQueue
from rotunda.broker.network.processor.request_sender import RequestSender
from rotunda.broker.network.processor.throttling.mute_state import MuteCause
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.routing import MAYBE_CONTROLLER_KEYS, route_produce

if TYPE_CHECKING:
    from rotunda.broker.config.broker_config import BrokerConfig
    from rotunda.broker.network.accounting.client_registry import ClientRegistry
    from rotunda.broker.network.processor.kept_requests import KeptRequests

#: size, api key, api version, correlation id: the fields read before the routing key.
_FRAME_START = Struct(">ihhi")
_HEADER_START = Struct(">hhi")
_SIZE = Struct(">i")

#: api key, version and correlation id: no request is shorter.
_SMALLEST_REQUEST_BYTES = 8

_CLIENT_ID_AT = 8

#: The most bytes received of one request before others are served.
RECEIVED_AT_ONCE_BYTES = 4 * 1024 * 1024

_PRODUCE = int(ApiKey.PRODUCE)
_API_VERSIONS = int(ApiKey.API_VERSIONS)

#: By API key, whether some of its requests are for the controller.
_MAYBE_CONTROLLER = bytes(key in MAYBE_CONTROLLER_KEYS for key in range(max(ApiKey) + 1))

_FRAME_START_BYTES = _FRAME_START.size
_unpack_start = _FRAME_START.unpack_from


class ReceivedCounts:
    """The requests sent on, and the bytes received."""

    def __init__(self) -> None:
        self.requests = self.bytes = 0


class RequestReader:
    """Reads channels and sends their requests on; has the list of channels that wait for room."""

    def __init__(
        self, config: BrokerConfig, sender: RequestSender, kept: KeptRequests, now_ns: Callable[[], int]
    ) -> None:
        self.sender = sender
        self._send = sender.try_send
        self.kept = kept
        self.waiting: dict[int, Channel] = {}
        self.memory = MemoryQueue(sender)
        self.authentication = Authentication(config, now_ns, SystemClock.wall_ms)
        #: The clients; every channel with a `Channel.client_prefix` is registered there.
        self.clients: ClientRegistry | None = None
        self.counts = ReceivedCounts()
        self._now_ns = now_ns
        self._max_request_bytes = config.socket_request_max_bytes
        #: The most bytes of a request sent through a ring, including its size field.
        self._max_inline_bytes = _SIZE.size + min(INLINE_REQUEST_BYTES, self._max_request_bytes)
        self._pipeline_max = config.pipeline_max
        self._pipeline_resume = config.pipeline_resume
        # With one handler all partitions, groups and connections have the same owner: no routing key is needed.
        self._one_handler = sender.handlers == 1
        self._receive: Callable[[Channel], bytes | None] = self._receive_frame
        self._natively: Any = None
        if compiled is not None:
            self.counts = self._natively = receiver = compiled.FrameReceiver()
            receiver.rings, receiver.generations, receiver.touched = sender.rings, sender.generations, sender.touched
            receiver.target_of, receiver.clock_ns, receiver.pipeline_cause = self._target_of, now_ns, MuteCause.PIPELINE
            receiver.most_bytes = min(INLINE_REQUEST_BYTES, self._max_request_bytes)
            receiver.pipeline_max = self._pipeline_max
            self._receive = receiver.receive
        self._note_routed()

    def read(self, channel: Channel) -> bool:
        """Read the socket at most once (``B07``). Return False when the client has closed (``C05``).

        Raises InvalidReceive if the bytes are not a Kafka request.
        """
        if channel.large is not None:
            return self._read_large(channel, channel.large)
        try:
            rest = self._receive(channel)
        except BlockingIOError as blocked:
            return _would_block(channel, blocked)
        except OSError:
            return False
        if rest:
            self._take(channel, channel.inbox + rest if channel.inbox else rest)
        return rest is not None

    def _receive_frame(self, channel: Channel) -> bytes | None:
        """Receive once, and send on one small request if that is all.

        Return the bytes that are left, or None at their end. Raises OSError.
        """
        data = channel.recv(channel.read_bytes)
        count = len(data)
        if not count:
            return None
        self.counts.bytes += count
        if _FRAME_START_BYTES <= count <= self._max_inline_bytes and not (channel.inbox or channel.muted):
            head = _unpack_start(data)
            if head[0] + 4 == count:
                if not self._try_send(channel, data[4:], head, self._now_ns()):
                    channel.inbox = data
                return b""
        return data

    def release(self, handlers: int) -> None:
        """Send held requests on to this number of handlers."""
        self.sender.release(handlers)
        self._one_handler = handlers == 1
        self._note_routed()

    def lift_mutes(self, channel: Channel) -> None:
        """Lift the mutes of a channel whose responses are all written, as far as its requests in flight allow it."""
        if channel.muted & MuteCause.PIPELINE and channel.in_flight < self._pipeline_resume:
            channel.muted &= ~MuteCause.PIPELINE
        if channel.muted & MuteCause.PIPELINE_BYTES and self.kept.allows(channel):
            channel.muted &= ~MuteCause.PIPELINE_BYTES
        if channel.muted & MuteCause.ORDER and not channel.in_flight:
            channel.muted &= ~MuteCause.ORDER

    def resume(self, channel: Channel) -> None:
        """Retry requests held back by a full ring, a full pool or the in-flight limit."""
        channel.muted &= ~(MuteCause.RING_FULL | MuteCause.ARENA)
        large = channel.large
        if large is not None and large.filled == large.size and not self._send_large(channel, large):
            return
        if channel.inbox and channel.large is None:
            self._take(channel, channel.inbox)

    def take_waiting(self) -> list[Channel]:
        """Reclaim freed memory and return the channels that wait for room, to be resumed."""
        self.sender.reclaim()
        waiting, self.waiting = list(self.waiting.values()), {}
        return waiting

    def try_repeat(self, channel: Channel, sequence: int) -> bool:
        """Resend an unanswered request after its target was replaced. Return False without room for it.

        The target skips the first copy, which has the generation of its predecessor.
        """
        request = channel.repeatable.get(sequence)
        if request is None:
            return True
        received_ns, target, frame = request
        size = len(frame)
        envelope = (channel.connection_id, sequence, received_ns, *_HEADER_START.unpack_from(frame), size)
        if size <= INLINE_REQUEST_BYTES:
            return self.sender.try_send(target, envelope, channel.listener, frame, channel.session)
        block = self.sender.allocate(size)
        if block is None:
            return False
        block.view[:] = frame
        place = block.area, block.address
        if self.sender.try_send_block(target, envelope, channel.listener, place, channel.session):
            return True
        self.sender.pool.free(block.area, block.address)
        return False

    def _take(self, channel: Channel, data: bytes) -> None:
        """Send on every complete frame of ``data``; store the rest in the channel's inbox (``C01``)."""
        if channel.authenticator is not None:
            data = self.authentication.take_all(channel, data, self._try_send)
            if channel.authenticator is not None and not channel.authenticator.is_open:
                channel.inbox = data
                return
        start, filled = 0, len(data)
        now_ns = self._now_ns()
        while filled - start >= _FRAME_START.size and not channel.muted:
            head = _unpack_start(data, start)
            size = head[0]
            if INLINE_REQUEST_BYTES < size <= self._max_request_bytes:
                start = self._begin_large(channel, data, start, size)
                if channel.large is not None:
                    break
                continue
            if not _SMALLEST_REQUEST_BYTES <= size <= self._max_request_bytes:
                raise self._invalid_size(data, start, size)
            end = start + 4 + size
            if end > filled or not self._try_send(channel, data[start + 4 : end], head, now_ns):
                break
            start = end
        channel.inbox = data[start:]
        if 4 <= filled - start < _FRAME_START.size:
            self._check_size(channel.inbox)

    def _try_send(self, channel: Channel, frame: bytes, head: tuple[int, int, int, int], now_ns: int) -> bool:
        """Send one small frame to its target. Return False if the ring is full; the channel then waits for room."""
        if (authenticator := channel.authenticator) is not None and (
            is_taken := self.authentication.take(channel, authenticator, frame, head, now_ns)
        ) is not None:
            return is_taken
        size, api_key, api_version, correlation_id = head
        target = 0
        if not self._one_handler or api_key in MAYBE_CONTROLLER_KEYS:
            target = self._target_of(channel, frame, api_key, api_version)
            if target < 0:
                return False
        if not frame.startswith(channel.client_prefix, _CLIENT_ID_AT):
            self._identify(channel, frame)
        sequence = channel.next_sequence
        envelope = (channel.connection_id, sequence, now_ns, api_key, api_version, correlation_id, size)
        if not self._send(target, envelope, channel.listener, frame, channel.session):
            self._wait(channel, MuteCause.RING_FULL)
            return False
        if api_key != _PRODUCE:
            kept_bytes = channel.kept_bytes + size
            if kept_bytes <= OWN_BYTES:
                channel.repeatable[sequence] = (now_ns, target, frame)
                channel.kept_bytes = kept_bytes
            else:
                self.kept.keep(channel, sequence, now_ns, target, frame)
            if api_key == _API_VERSIONS and self.clients is not None:
                self.clients.introduced(channel, frame, api_version)
        channel.next_sequence = sequence = sequence + 1
        channel.read_bytes = SMALL_READ_BYTES
        self.counts.requests += 1
        if sequence - channel.next_response >= self._pipeline_max:
            channel.muted |= MuteCause.PIPELINE
        return True

    def _target_of(self, channel: Channel, frame: bytes | memoryview, api_key: int, api_version: int) -> int:
        """Return the target of a request, or -1 if it must wait; the channel is then muted.

        Parts of a Produce for other owners are forwarded by the handler that receives it, and the connection's next
        request must not overtake them by a direct route. So the first Produce that names several partitions waits until
        nothing is in flight, and from then on every Produce of its connection is sent to the same target.
        """
        if api_key != _PRODUCE or self._one_handler:
            return self.sender.target_of(frame, api_key, api_version, channel.connection_id)
        if channel.produce_target >= 0:
            return channel.produce_target
        target, is_single = route_produce(frame, api_version, channel.connection_id, self.sender.handlers)
        if is_single:
            return target
        if channel.in_flight:
            channel.muted |= MuteCause.ORDER
            return -1
        channel.produce_target = target
        return target

    def _note_routed(self) -> None:
        if self._natively is not None:
            self._natively.is_routed = _MAYBE_CONTROLLER if self._one_handler else b""

    def _check_size(self, rest: bytes) -> None:
        """Reject an invalid size, 0 too (``C03``), before the announced bytes arrive: they may never arrive."""
        (size,) = _SIZE.unpack_from(rest)
        if not _SMALLEST_REQUEST_BYTES <= size <= self._max_request_bytes:
            raise self._invalid_size(rest, 0, size)

    def _begin_large(self, channel: Channel, data: bytes, start: int, size: int) -> int:
        """Allocate a block for a large request and copy its received bytes. Return the offset of the rest."""
        if channel.authenticator is not None:
            self.authentication.check_large(channel, channel.authenticator)
        block = self.memory.allocate(channel, size, self._now_ns())
        if block is None:
            self._wait(channel, MuteCause.ARENA)
            return start
        large = LargeReceive(block.area, block.address, size, block.view)
        end = min(len(data), start + 4 + size)
        large.take(memoryview(data)[start + 4 : end])
        channel.large = large
        channel.read_bytes = LARGE_READ_BYTES
        if large.filled == size:
            self._received_large(channel, large)
        return end

    def _read_large(self, channel: Channel, large: LargeReceive) -> bool:
        try:
            # The kernel would continue for as long as the client sends.
            count = channel.sock.recv_into(large.view[large.filled : large.filled + RECEIVED_AT_ONCE_BYTES])
        except BlockingIOError as blocked:
            return _would_block(channel, blocked)
        except OSError:
            return False
        if count == 0:
            return False
        self.counts.bytes += count
        large.filled += count
        if large.filled == large.size:
            self._received_large(channel, large)
        return True

    def _received_large(self, channel: Channel, large: LargeReceive) -> None:
        self.memory.received(channel)
        if channel.authenticator is not None:
            # The session may have expired since the first byte arrived.
            self.authentication.check_large(channel, channel.authenticator)
        self._send_large(channel, large)

    def _send_large(self, channel: Channel, large: LargeReceive) -> bool:
        """Send a complete large request to its target. Return False if the ring is full; the channel then keeps it."""
        api_key, api_version, correlation_id = _HEADER_START.unpack_from(large.view)
        target = self._target_of(channel, large.view, api_key, api_version)
        if target < 0:
            return False
        now_ns = self._now_ns()
        prefix = channel.client_prefix
        if large.view[_CLIENT_ID_AT : _CLIENT_ID_AT + len(prefix)] != prefix:
            self._identify(channel, large.view)
        sequence = channel.next_sequence
        envelope = (channel.connection_id, sequence, now_ns, api_key, api_version, correlation_id, large.size)
        place = large.area, large.address
        if not self.sender.try_send_block(target, envelope, channel.listener, place, channel.session):
            self._wait(channel, MuteCause.RING_FULL)
            return False
        if api_key != _PRODUCE:
            self.kept.keep(channel, sequence, now_ns, target, large.view)
        channel.next_sequence = sequence + 1
        channel.large = None
        self.counts.requests += 1
        if channel.in_flight >= self._pipeline_max:
            channel.muted |= MuteCause.PIPELINE
        return True

    def _identify(self, channel: Channel, frame: bytes | memoryview) -> None:
        if self.clients is not None:
            self.clients.named(channel, frame)

    def give_up_large(self, channel: Channel) -> None:
        """Free the memory of an incomplete request, or leave the memory queue (``B16``)."""
        self.memory.forget(channel)
        if channel.large is not None:
            self.sender.pool.free(channel.large.area, channel.large.address)
            channel.large = None

    def forget(self, channel: Channel) -> None:
        """Free the resources of a closed channel (``B26``)."""
        self.waiting.pop(channel.fd, None)
        self.authentication.forget(channel)
        self.give_up_large(channel)
        self.kept.drop_all(channel)

    def _wait(self, channel: Channel, cause: MuteCause) -> None:
        channel.muted |= cause
        self.waiting[channel.fd] = channel

    def _invalid_size(self, data: bytes, start: int, size: int) -> InvalidReceive:
        reason = (
            f"invalid receive size {size}: requests have {_SMALLEST_REQUEST_BYTES} to {self._max_request_bytes} bytes"
        )
        foreign = describe_foreign(data[start : start + 8])
        return InvalidReceive(f"{reason}; {foreign}" if foreign else f"{reason} (socket.request.max.bytes)")


def _would_block(channel: Channel, blocked: BlockingIOError) -> bool:
    """Return True: nothing to read now. The next event reports input, unless TLS must write first."""
    if isinstance(blocked, ReadBlockedByWriteError):
        channel.read_when_writable()
    return True
