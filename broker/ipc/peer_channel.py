"""The peer channel: messages between targets, such as parts of a Produce and tasks.

Runs in handler processes and the controller. A message is one PEER_ENVELOPE. Records are never copied: the message has
their address in the memory of the origin's request. The origin holds that memory until the reply has arrived and the
frame with the message is released. If a ring is full, the message is queued here; nothing blocks (``D04``).

Two targets that send each other requests must not fill each other's rings so that neither can reply. So requests may
use only a share of a ring, and replies all of it. A target releases the messages it has read, and reads more, only
while its replies to that sender are in the ring. Both cannot be blocked: a ring full of replies would need as many
requests, and those had only their share of the other ring.

A part of a Produce may need more than one turn of its owner. Its message stays in the ring until the reply is sent, and
so do the later messages. Those of them that are done are marked as such, since a replacement must not repeat them so
much later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import count
from struct import Struct
from typing import NamedTuple

from rotunda.broker.ipc.request_channel import PEER, RequestChannel
from rotunda.shm.rings.bell import SemaphoreBell
from rotunda.shm.rings.ring import TAIL, RingConsumer, RingProducer

#: In PEER_ENVELOPE.error_code: the part has killed its owner, and the connection of its request must be closed.
POISON = -32_000

#: Values of PEER_ENVELOPE.kind.
PRODUCE_PART, PRODUCE_REPLY, TASK, TASK_REPLY = 1, 2, 3, 4

#: Kind that the reader writes into a message that is done and cannot be released yet.
DONE = 5
_DONE_KIND = Struct("=h").pack(DONE)

_BATCH = 256

#: The divisor of a ring's capacity for the unreleased requests of its sender.
_QUESTIONS_SHARE = 4

#: A token is the generation of the requesting process, then a counter of its own.
_GENERATION_SHIFT = 40


class PeerMessage(NamedTuple):
    """One PEER_ENVELOPE, field by field, and the ``payload`` that follows it."""

    kind: int
    error_code: int = 0
    part: int = 0
    token: int = 0
    area: int = 0
    address: int = 0
    size: int = 0
    row: int = -1
    base_offset: int = -1
    time_ms: int = -1
    argument: int = 0
    guard: int = 0
    payload: bytes = b""


#: A message as it arrives: (its source, the message, the position of its end in the ring).
Received = tuple[int, PeerMessage, int]


class Peers:
    """One target's ends of the peer rings."""

    def __init__(self, channel: RequestChannel, index: int, generation: int, bells: tuple[SemaphoreBell, ...]) -> None:
        self._generation = generation
        peers = (*channel.targets, channel.shape.peers - 1)
        others = [target for target in peers if target != index]
        self._view = channel.view
        self._bells = bells
        self._out: dict[int, RingProducer] = {t: channel.peer_producer(index, t) for t in others}
        self._in: dict[int, RingConsumer] = {t: channel.peer_consumer(t, index) for t in others}
        #: By source, (end, start) of messages that are received and not released.
        self._unreleased: dict[int, deque[tuple[int, int]]] = {t: deque() for t in others}
        self._kept_replies: dict[int, deque[PeerMessage]] = {t: deque() for t in others}
        self._kept_questions: dict[int, deque[tuple[PeerMessage, Callable[[RingProducer], None] | None]]] = {
            t: deque() for t in others
        }
        self._touched: set[int] = set()
        #: Number of messages waiting for room.
        self.waiting = 0

    def new_tokens(self) -> Iterator[int]:
        """Return the tokens of requests. No predecessor of this process used them, so none of its replies match."""
        return count(self._generation << _GENERATION_SHIFT)

    def send(self, target: int, message: PeerMessage, sent: Callable[[RingProducer], None] | None = None) -> None:
        """Send a request, now or when there is room; ``sent(ring)`` is called once the message is in the ring."""
        kept = self._kept_questions[target]
        if kept or not self._try_ask(target, message, sent):
            kept.append((message, sent))
            self.waiting += 1

    def reply(self, target: int, message: PeerMessage) -> None:
        """Send a reply, now or when there is room; until then nothing more is read from that target."""
        kept = self._kept_replies[target]
        if kept or not self._try_send(target, message, None):
            kept.append(message)
            self.waiting += 1

    def receive(self) -> list[Received]:
        """Return the messages that have arrived; `release` or `release_handled` frees them. HOT: once a turn."""
        arrived: list[Received] = []
        for source, ring in self._in.items():
            if ring.words[TAIL] == ring.cursor or self._kept_replies[source]:
                continue
            unreleased = self._unreleased[source]
            for at, length, end in ring.read(_BATCH):
                unreleased.append((end, at))
                payload = bytes(self._view[at + PEER.size : at + length])
                arrived.append((source, PeerMessage._make((*PEER.unpack_from(self._view, at), payload)), end))
        return arrived

    def release_handled(self, handled: dict[int, int], unanswered: Mapping[int, Collection[int]]) -> None:
        """Release messages up to a position, by source, if the replies to them are in the ring.

        Messages that end at one of the ``unanswered`` positions stay in the ring; later ones are marked as done.
        """
        for source in [source for source in handled if not self._kept_replies[source]]:
            waits = unanswered.get(source, ())
            end, unreleased = handled[source], self._unreleased[source]
            released = -1
            while unreleased and unreleased[0][0] <= end and unreleased[0][0] not in waits:
                released, _ = unreleased.popleft()
            if released >= 0:
                self._in[source].release_to(released)
            if not waits:
                del handled[source]
                continue
            for position, at in unreleased:
                if position > end:
                    break
                if position not in waits:
                    self._view[at : at + len(_DONE_KIND)] = _DONE_KIND

    def release(self) -> None:
        """Release the received messages whose replies are in the ring."""
        for source, ring in self._in.items():
            if not self._kept_replies[source]:
                self._unreleased[source].clear()
                ring.release()

    def publish(self) -> None:
        """Publish the batch and wake its receivers. HOT: once a turn."""
        if self.waiting:
            self._send_kept()
        if self._touched:
            for target in self._touched:
                self._out[target].publish()
                self._bells[target].ring()
            self._touched.clear()

    def _send_kept(self) -> None:
        """Send the queued messages that have room now."""
        for target, replies in self._kept_replies.items():
            while replies and self._try_send(target, replies[0], None):
                replies.popleft()
                self.waiting -= 1
        for target, questions in self._kept_questions.items():
            while questions and self._try_ask(target, *questions[0]):
                questions.popleft()
                self.waiting -= 1

    def unread_before(self) -> list[tuple[RingProducer, int]]:
        """Return (ring, position) for rings with unreleased messages of a predecessor."""
        return [(ring, ring.position) for ring in self._out.values() if ring.consumed() < ring.position]

    def _try_ask(self, target: int, message: PeerMessage, sent: Callable[[RingProducer], None] | None) -> bool:
        ring = self._out[target]
        unreleased_bytes = ring.position - ring.consumed()
        size = PEER.size + len(message.payload)
        if unreleased_bytes and unreleased_bytes + size > ring.capacity // _QUESTIONS_SHARE:
            return False
        return self._try_send(target, message, sent)

    def _try_send(self, target: int, message: PeerMessage, sent: Callable[[RingProducer], None] | None) -> bool:
        ring = self._out[target]
        at = ring.claim(PEER.size + len(message.payload))
        if at < 0:
            return False
        PEER.pack_into(self._view, at, *message[:-1])
        if message.payload:
            start = at + PEER.size
            self._view[start : start + len(message.payload)] = message.payload
        self._touched.add(target)
        if sent is not None:
            sent(ring)
        return True
