"""The cleaner's requests to the owners of partitions: one at a time, each waits for its response.

Runs in the cleaner process. It is the only peer that may block, since no process waits for it: it has at most one
request in flight, for which the ring always has room, and any other response is a duplicate and is dropped. An owner
that dies meanwhile is replaced, and its replacement finds the request in the ring.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rotunda.broker.errors import RotundaError
from rotunda.broker.ipc.peer_channel import TASK, TASK_REPLY, PeerMessage, Peers
from rotunda.broker.scheduling.peer_tasks import TASK_NAMES
from rotunda.shm.tables.process_slots import BEAT_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from rotunda.broker.ipc.request_channel import RequestChannel
    from rotunda.shm.rings.bell import SemaphoreBell

#: Polling interval, in case no bell rings.
_LOOK_AGAIN_S = 0.3


class Stopped(RotundaError):  # noqa: N818  # said as it is
    """The process must stop; the current task is abandoned."""


class OwnerClient:
    """The cleaner's ends of the peer rings.

    `is_stopped` returns whether the process must end. `beat` is called in every poll.
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
        self._replies: dict[int, PeerMessage] = {}

    def await_predecessor(self) -> None:
        """Wait until the requests of a killed predecessor have been read: they refer to files of the same names.

        Raises Stopped.
        """
        while self._peers.unread_before():
            self.wait(_LOOK_AGAIN_S / 10)

    def ask(self, owner: int, task: str, payload: bytes) -> tuple[int, bytes]:
        """Send an owner one of TASK_NAMES and wait; return its error code and response. Raises Stopped."""
        token = self._asked = next(self._tokens)
        self._peers.send(owner, PeerMessage(TASK, part=TASK_NAMES.index(task), token=token, payload=payload))
        self._peers.publish()
        while token not in self._replies:
            self.wait(_LOOK_AGAIN_S)
        reply = self._replies.pop(token)
        return reply.error_code, reply.payload

    def wait(self, timeout_s: float) -> None:
        """Sleep until the bell rings, at most `timeout_s` and BEAT_S; receive messages. Raises Stopped."""
        self.look()
        if not self._replies:
            self._bell.wait(min(timeout_s, BEAT_S))
            self.look()

    def look(self) -> None:
        """Receive messages, so that no owner waits for room in a ring. Raises Stopped."""
        self._beat()
        for _, message, _ in self._peers.receive():
            if message.kind == TASK_REPLY and message.token == self._asked:
                self._asked = -1
                self._replies[message.token] = message
        self._peers.publish()
        self._peers.release()
        if self._is_stopped():
            raise Stopped
