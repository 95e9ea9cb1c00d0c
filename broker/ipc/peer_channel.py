"""The peer channel: messages between targets: parts of a Produce, and tasks.

Runs in handler processes and the controller. A message is one PEER_ENVELOPE; records never travel, only the address
where they lie in the memory of the origin's request, which the origin holds until the answer is in and the frame that
asked has been released. A full ring keeps the message here; nothing waits (``D04``).

Two targets that ask each other must not fill each other's rings so that neither can answer. So questions take only a
share of a ring, answers all of it; and what a target has read is released, and more of it read, only while its answers
to that sender are on their way. Both cannot be stuck: a ring's worth of answers would need as many questions, and
those had no more than their share of the other ring.

A part of a Produce may take its owner more than a turn. Its message stays until it is answered, and so do those behind
it; of these the ones that have been done are marked as such, since a replacement must not do them so much later again.
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

#: In PEER_ENVELOPE.error_code: the part has killed its owner, and the connection of its request is to be closed.
POISON = -32_000

#: What PEER_ENVELOPE.kind names.
PRODUCE_PART, PRODUCE_ANSWER, TASK, TASK_ANSWER = 1, 2, 3, 4

#: What its reader makes of the kind of a message that is done with and cannot be released yet.
DONE = 5
_DONE_KIND = Struct("=h").pack(DONE)

_BATCH = 256

#: The part of a ring that its sender's unreleased messages may take before it asks nothing more.
_QUESTIONS_SHARE = 4

#: A token is the generation of the process that asks, then a counter of its own.
_GENERATION_SHIFT = 40


class PeerMessage(NamedTuple):
    """One PEER_ENVELOPE, field by field; ``payload`` is what follows it."""

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


#: A message as it arrives: (who sent it, the message, where it ends in its ring).
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
        #: By source, (where it ends, where it begins) of messages that have been received and not been released.
        self._unreleased: dict[int, deque[tuple[int, int]]] = {t: deque() for t in others}
        self._kept_answers: dict[int, deque[PeerMessage]] = {t: deque() for t in others}
        self._kept_questions: dict[int, deque[tuple[PeerMessage, Callable[[RingProducer], None] | None]]] = {
            t: deque() for t in others
        }
        self._touched: set[int] = set()
        #: How many messages wait for room.
        self.waiting = 0

    def new_tokens(self) -> Iterator[int]:
        """Return numbers for questions. No predecessor of this process used them, so none of its answers match."""
        return count(self._generation << _GENERATION_SHIFT)

    def send(self, target: int, message: PeerMessage, sent: Callable[[RingProducer], None] | None = None) -> None:
        """Ask, now or when there is room; ``sent(ring)`` is called once the message has its place in the ring."""
        kept = self._kept_questions[target]
        if kept or not self._try_ask(target, message, sent):
            kept.append((message, sent))
            self.waiting += 1

    def answer(self, target: int, message: PeerMessage) -> None:
        """Answer, now or when there is room; what is asked beyond that waits until then."""
        kept = self._kept_answers[target]
        if kept or not self._try_send(target, message, None):
            kept.append(message)
            self.waiting += 1

    def receive(self) -> list[Received]:
        """Return what has arrived; `release` or `release_taken` gives the memory back. HOT: once a turn."""
        arrived: list[Received] = []
        for source, ring in self._in.items():
            if ring.words[TAIL] == ring.cursor or self._kept_answers[source]:
                continue
            unreleased = self._unreleased[source]
            for at, length, end in ring.read(_BATCH):
                unreleased.append((end, at))
                payload = bytes(self._view[at + PEER.size : at + length])
                arrived.append((source, PeerMessage._make((*PEER.unpack_from(self._view, at), payload)), end))
        return arrived

    def release_taken(self, taken: dict[int, int], unanswered: Mapping[int, Collection[int]]) -> None:
        """Give back what was received up to a position, by source, where the answers to it have been published.

        What ends at one of the ``unanswered`` positions stays, and is followed by messages that are marked as done.
        """
        for source in [source for source in taken if not self._kept_answers[source]]:
            waits = unanswered.get(source, ())
            end, unreleased = taken[source], self._unreleased[source]
            released = -1
            while unreleased and unreleased[0][0] <= end and unreleased[0][0] not in waits:
                released, _ = unreleased.popleft()
            if released >= 0:
                self._in[source].release_to(released)
            if not waits:
                del taken[source]
                continue
            for position, at in unreleased:
                if position > end:
                    break
                if position not in waits:
                    self._view[at : at + len(_DONE_KIND)] = _DONE_KIND

    def release(self) -> None:
        """Give back what was received, as far as the answers to it have been published."""
        for source, ring in self._in.items():
            if not self._kept_answers[source]:
                self._unreleased[source].clear()
                ring.release()

    def publish(self) -> None:
        """Make the batch visible and wake those it is for. HOT: once a turn."""
        if self.waiting:
            self._send_kept()
        if self._touched:
            for target in self._touched:
                self._out[target].publish()
                self._bells[target].ring()
            self._touched.clear()

    def _send_kept(self) -> None:
        """Send what has waited and finds room now."""
        for target, answers in self._kept_answers.items():
            while answers and self._try_send(target, answers[0], None):
                answers.popleft()
                self.waiting -= 1
        for target, questions in self._kept_questions.items():
            while questions and self._try_ask(target, *questions[0]):
                questions.popleft()
                self.waiting -= 1

    def unread_before(self) -> list[tuple[RingProducer, int]]:
        """Return (ring, position) for rings in which messages of a predecessor have not been released yet."""
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
