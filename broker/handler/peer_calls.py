"""The calls of this target to other targets, stored until their replies arrive.

Runs in handler processes and the controller. `peer_rpc` executes the tasks that others send to this target.
"""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rotunda.broker.ipc.peer_channel import TASK, PeerMessage, Peers
from rotunda.shm.tables.process_slots import CONTROLLER, HANDLER

if TYPE_CHECKING:
    from rotunda.broker.scheduling.peer_tasks import TaskDone
    from rotunda.shm.tables.process_slots import ProcessSlots


#: Where a payload is: in the message itself, or in the file that the message names.
IN_MESSAGE, IN_FILE = 0, 1

MOST_IN_MESSAGE_BYTES = 4 * 1024


class PeerPayloads:
    """Packs and unpacks payloads for one target: short ones in the message, long ones in files.

    A peer ring holds 64 KiB, requests a quarter of that; the description of a large group is longer. Such a payload is
    written to a file in the run directory, as with large responses to clients. A request may be read twice, so its file
    stays until the reply arrives; the file of a reply is deleted when it is read.
    """

    def __init__(self, run_dir: Path, index: int) -> None:
        self._names = (run_dir / f"peer-{index}-{os.getpid()}-{n}" for n in count())

    def pack(self, payload: bytes) -> tuple[int, bytes]:
        """Return (place, packed payload)."""
        if len(payload) <= MOST_IN_MESSAGE_BYTES:
            return IN_MESSAGE, payload
        path = next(self._names)
        path.write_bytes(payload)
        return IN_FILE, os.fsencode(path)

    def remove(self, packed: bytes) -> None:
        """Remove the file that a message names."""
        Path(os.fsdecode(packed)).unlink(missing_ok=True)

    def unpack(self, place: int, packed: bytes, *, last_use: bool) -> bytes:
        """Return the payload, and remove its file after its last use. Raises OSError if the file is missing."""
        if place == IN_MESSAGE:
            return packed
        path = Path(os.fsdecode(packed))
        payload = path.read_bytes()
        if last_use:
            path.unlink(missing_ok=True)
        return payload


class _Asked(NamedTuple):
    """A task sent to a target, sent again to its replacement if that starts before the reply arrives."""

    target: int
    generation: int
    message: PeerMessage


class PeerCalls:
    """The tasks that one target has sent to others."""

    def __init__(self, peers: Peers, post: PeerPayloads, slots: ProcessSlots, handlers: int) -> None:
        self.peers = peers
        self.post = post
        self._slots = slots
        self._handlers = handlers
        self._tokens = peers.new_tokens()
        self._asked: dict[int, TaskDone] = {}
        #: The sliced tasks among them: their target may die after it has released the request.
        self._asked_sliced: dict[int, _Asked] = {}

    def send(self, target: int, number: int, payload: bytes, done: TaskDone, *, is_sliced: bool) -> None:
        """Send a task to another target; ``done`` is called with its reply in a later turn."""
        token = next(self._tokens)
        place, packed = self.post.pack(payload)
        self._asked[token] = done if place == IN_MESSAGE else self._clearing_up(packed, done)
        message = PeerMessage(TASK, part=number, token=token, area=place, payload=packed)
        if is_sliced:
            self._asked_sliced[token] = _Asked(target, self._generation(target), message)
        self.peers.send(target, message)

    def receive_reply(self, message: PeerMessage) -> None:
        """Pass a reply to its caller's callback; drop a reply to a predecessor's request."""
        self._asked_sliced.pop(message.token, None)
        done = self._asked.pop(message.token, None)
        payload = self.post.unpack(message.area, message.payload, last_use=True)
        if done is not None:
            done(message.error_code, payload)

    def repeat(self) -> None:
        """Send the sliced tasks again whose target has been replaced since they were sent."""
        for token, (target, generation, message) in list(self._asked_sliced.items()):
            now = self._generation(target)
            if now != generation:
                self._asked_sliced[token] = _Asked(target, now, message)
                self.peers.send(target, message)

    def _generation(self, target: int) -> int:
        return self._slots.ready_generation(*((HANDLER, target) if target < self._handlers else (CONTROLLER, 0)))

    def _clearing_up(self, packed: bytes, done: TaskDone) -> TaskDone:
        """Return ``done``, wrapped to remove the file of the request when the reply arrives."""

        def completed(error: int, payload: bytes) -> None:
            self.post.remove(packed)
            done(error, payload)

        return completed
