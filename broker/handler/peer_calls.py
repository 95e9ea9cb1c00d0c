"""The calls of this target to others, kept until their answers are there.

Runs in handler processes and the controller. How tasks are done is the business of `peer_rpc`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.handler.peer_payloads import IN_MESSAGE, PeerPayloads
from broker.ipc.peer_channel import TASK, PeerMessage, Peers
from shm.tables.process_slots import CONTROLLER, HANDLER

if TYPE_CHECKING:
    from broker.scheduling.peer_tasks import TaskDone
    from shm.tables.process_slots import ProcessSlots


class _Asked(NamedTuple):
    """A task that was put to a target, to be put to its replacement as well if that comes before the answer."""

    target: int
    generation: int
    message: PeerMessage


class PeerCalls:
    """The tasks that one target has put to others."""

    def __init__(self, peers: Peers, post: PeerPayloads, slots: ProcessSlots, handlers: int) -> None:
        self.peers = peers
        self.post = post
        self._slots = slots
        self._handlers = handlers
        self._tokens = peers.new_tokens()
        self._asked: dict[int, TaskDone] = {}
        #: Of those, the ones that are done in slices: their target may die when it has let go of the question.
        self._asked_sliced: dict[int, _Asked] = {}

    def send(self, target: int, number: int, payload: bytes, done: TaskDone, *, is_sliced: bool) -> None:
        """Put a task to another target; its answer is given to ``done`` in some later turn."""
        token = next(self._tokens)
        place, packed = self.post.pack(payload)
        self._asked[token] = done if place == IN_MESSAGE else self._clearing_up(packed, done)
        message = PeerMessage(TASK, part=number, token=token, area=place, payload=packed)
        if is_sliced:
            self._asked_sliced[token] = _Asked(target, self._generation(target), message)
        self.peers.send(target, message)

    def take_answer(self, message: PeerMessage) -> None:
        """Give an answer to whoever asked; one for a predecessor's question has no taker."""
        self._asked_sliced.pop(message.token, None)
        done = self._asked.pop(message.token, None)
        payload = self.post.unpack(message.area, message.payload, last_use=True)
        if done is not None:
            done(message.error_code, payload)

    def repeat(self) -> None:
        """Ask again what is done in slices by a target that has been replaced since it was asked."""
        for token, (target, generation, message) in list(self._asked_sliced.items()):
            now = self._generation(target)
            if now != generation:
                self._asked_sliced[token] = _Asked(target, now, message)
                self.peers.send(target, message)

    def _generation(self, target: int) -> int:
        return self._slots.ready_generation(*((HANDLER, target) if target < self._handlers else (CONTROLLER, 0)))

    def _clearing_up(self, packed: bytes, done: TaskDone) -> TaskDone:
        """Return ``done`` such that the file of the question goes when its answer is there."""

        def answered(error: int, payload: bytes) -> None:
            self.post.remove(packed)
            done(error, payload)

        return answered
