"""Asking the owners of partitions, from the cleaner's side: one question at a time, and waiting for its answer.

Runs in the cleaner process. It is the one peer that may wait, since nobody waits for it: it has at most one question
out, which always has room in the ring, and whatever else arrives is an answer that came twice and is dropped. An owner
that dies meanwhile is replaced, and its replacement finds the question where it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rotunda.broker.errors import RotundaError
from rotunda.broker.ipc.peer_channel import TASK, TASK_ANSWER, PeerMessage, Peers
from rotunda.broker.scheduling.peer_tasks import TASK_NAMES
from rotunda.shm.tables.process_slots import BEAT_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from rotunda.broker.ipc.request_channel import RequestChannel
    from rotunda.shm.rings.bell import SemaphoreBell

#: The loop looks again after this, should no bell ring.
_LOOK_AGAIN_S = 0.3


class Stopped(RotundaError):  # noqa: N818  # said as it is
    """The process has been asked to stop; what it was doing is left as it is."""


class OwnerClient:
    """The cleaner's ends of the peer rings. `is_stopped`: whether the process is to end.

    `beat` is called while it turns.
    """

    def __init__(
        self,
        channel: RequestChannel,
        index: int,
        generation: int,
        bells: tuple[SemaphoreBell, ...],
        is_stopped: Callable[[], bool],
        beat: Callable[[], None],
    ) -> None:
        self._peers = Peers(channel, index, generation, bells)
        self._bell = bells[index]
        self._is_stopped = is_stopped
        self._beat = beat
        self._tokens = self._peers.new_tokens()
        self._asked = -1
        self._answers: dict[int, PeerMessage] = {}

    def await_predecessor(self) -> None:
        """Wait until the questions of a killed predecessor have been read: they are about files of the same names.

        Raises Stopped.
        """
        while self._peers.unread_before():
            self.wait(_LOOK_AGAIN_S / 10)

    def ask(self, owner: int, task: str, payload: bytes) -> tuple[int, bytes]:
        """Have an owner do one of TASK_NAMES; return its error code and answer. Raises Stopped."""
        token = self._asked = next(self._tokens)
        self._peers.send(owner, PeerMessage(TASK, part=TASK_NAMES.index(task), token=token, payload=payload))
        self._peers.publish()
        while token not in self._answers:
            self.wait(_LOOK_AGAIN_S)
        answer = self._answers.pop(token)
        return answer.error_code, answer.payload

    def wait(self, timeout_s: float) -> None:
        """Sleep until the bell rings, at most `timeout_s` and BEAT_S; take what has arrived. Raises Stopped."""
        self.look()
        if not self._answers:
            self._bell.wait(min(timeout_s, BEAT_S))
            self.look()

    def look(self) -> None:
        """Take what has arrived, so that no owner waits for room. Raises Stopped."""
        self._beat()
        for _, message, _ in self._peers.receive():
            if message.kind == TASK_ANSWER and message.token == self._asked:
                self._asked = -1
                self._answers[message.token] = message
        self._peers.publish()
        self._peers.release()
        if self._is_stopped():
            raise Stopped
