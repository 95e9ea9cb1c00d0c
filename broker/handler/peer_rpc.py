"""The incoming messages of other targets: a table from message kind to handler.

Runs in handler processes and the controller. Every request may arrive twice, because its sender or this process may
have been replaced in between. So every task here is idempotent: a repeated append is recognised by its note, any other
task by its outcome.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from rotunda.broker.ipc.peer_channel import (
    DONE,
    POISON,
    PRODUCE_PART,
    PRODUCE_REPLY,
    TASK,
    TASK_REPLY,
    PeerMessage,
    Received,
)
from rotunda.broker.ipc.request import MemoryAreas
from rotunda.broker.partitions.produce.append_notes import note_rejection
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.scheduling.peer_tasks import TASK_NAMES, TargetTasks, TaskDone
from rotunda.broker.scheduling.slices import SlicedWork, Slices, Work

if TYPE_CHECKING:
    from rotunda.broker.handler.peer_calls import PeerCalls
    from rotunda.broker.ipc.poison_requests import PoisonRequests
    from rotunda.broker.partitions.produce.produces import Produces

logger = logging.getLogger(__name__)


_NAMES = {
    PRODUCE_PART: "a part of a Produce",
    PRODUCE_REPLY: "a response to a part of a Produce",
    TASK: "a task",
    TASK_REPLY: "a response to a task",
    DONE: "a predecessor's results",
}

#: The kind of the reply to each kind of request.
_REPLY_KINDS = {PRODUCE_PART: PRODUCE_REPLY, TASK: TASK_REPLY}


class PeerRpc:
    """Messages between one target and the others."""

    def __init__(
        self,
        calls: PeerCalls,
        tasks: TargetTasks,
        produce: Produces,
        areas: MemoryAreas,
        poison: PoisonRequests,
        slices: Slices,
        now_ns: Callable[[], int],
    ) -> None:
        self._calls = calls
        self._peers = calls.peers
        self._post = calls.post
        self._tasks = tasks
        self._produce = produce
        self._areas = areas
        self._poison = poison
        self._slices = slices
        self._now_ns = now_ns
        #: By source, the ring position up to which its messages have been handled.
        self._handled: dict[int, int] = {}
        #: By source, the ring positions at which its unanswered parts of Produce end.
        self._unanswered: dict[int, set[int]] = defaultdict(set)
        self._position = 0
        self._takers: dict[int, Callable[[int, PeerMessage], None]] = {
            PRODUCE_PART: self._produce_part,
            PRODUCE_REPLY: self._produce_reply,
            TASK: self._task,
            TASK_REPLY: self._task_reply,
            DONE: _nothing,
        }

    def take(self, messages: list[Received], end_ns: int) -> list[Received]:
        """Handle messages of other targets, at least one, until a time; return the remaining ones for the next turn.

        Messages that have killed this process's predecessors are rejected.
        """
        current = self._poison.current
        for number, (source, message, position) in enumerate(messages, 1):
            identity = -1 - source, position
            self._position = position
            current.enter(identity)
            try:
                if self._poison.is_condemned(identity):
                    self._reject(source, message)
                else:
                    self._takers[message.kind](source, message)
            except Exception:
                logger.exception("message of kind %d from target %d failed", message.kind, source)
                self._unanswered[source].discard(position)
                self._reply_failure(source, message)
            current.leave()
            self._handled[source] = position
            if self._now_ns() >= end_ns:
                return messages[number:]
        return []

    def publish(self) -> None:
        """Send the replies; only then release the requests that they belong to. HOT: once a turn."""
        self._peers.publish()
        if self._handled:
            self._peers.release_handled(self._handled, self._unanswered)

    def _reject(self, source: int, message: PeerMessage) -> None:
        """Reject a message that predecessors died in; for a Produce its sender closes the connection."""
        self._poison.report_message(source, _NAMES[message.kind])
        if message.kind == PRODUCE_PART:
            note_rejection(
                self._areas.view(message.area), message.address, message.size, ErrorCode.UNKNOWN_SERVER_ERROR
            )
            self._reply_failure(source, message, POISON)
        else:
            self._reply_failure(source, message)

    def _reply_failure(self, source: int, message: PeerMessage, error: int = ErrorCode.UNKNOWN_SERVER_ERROR) -> None:
        """Send an error reply for a failed message, so that its sender does not wait for ever."""
        kind = _REPLY_KINDS.get(message.kind)
        if kind is not None:
            reply = PeerMessage(kind, error_code=error, part=message.part, token=message.token, row=message.row)
            self._peers.reply(source, reply)

    def _produce_part(self, source: int, message: PeerMessage) -> None:
        position, unanswered = self._position, self._unanswered[source]
        unanswered.add(position)

        def appended(error: int, base_offset: int, time_ms: int) -> None:
            start = self._produce.log_start_offset(message.row)
            reply = PeerMessage(
                PRODUCE_REPLY,
                error_code=error,
                part=message.part,
                token=message.token,
                row=message.row,
                base_offset=base_offset,
                time_ms=time_ms,
                argument=start,
            )
            self._peers.reply(source, reply)
            unanswered.discard(position)

        self._produce.receive_peer_part(source, message, self._areas.view(message.area), appended)

    def _produce_reply(self, source: int, message: PeerMessage) -> None:
        del source
        self._produce.receive_peer_reply(message)

    def _task(self, source: int, message: PeerMessage) -> None:
        def reply(error_code: int, payload: bytes) -> None:
            place, packed = self._post.pack(payload)
            message_back = PeerMessage(
                TASK_REPLY, error_code=error_code, token=message.token, area=place, payload=packed
            )
            self._peers.reply(source, message_back)

        try:
            payload = self._post.unpack(message.area, message.payload, last_use=False)
        except FileNotFoundError:
            # Already replied: this process's predecessor sent the reply and died before it released the request.
            reply(int(ErrorCode.COORDINATOR_NOT_AVAILABLE), b"")
            return
        work = self._tasks.sliced(message.part, payload)
        if work is None:
            self._tasks.do(message.part, payload, reply)
        elif self._poison.is_condemned((-1 - source, message.token)):
            self._reject(source, message)
        else:
            self._slices.add_now(self._sliced(work, source, message, reply))

    def _sliced(self, work: Work, source: int, message: PeerMessage, reply: TaskDone) -> SlicedWork:
        return SlicedWork(
            work,
            lane=("target", source),
            # A repeated request is at another ring position; its token is the same.
            identity=(-1 - source, message.token),
            done=lambda result: reply(*result),
            failed=lambda: reply(int(ErrorCode.UNKNOWN_SERVER_ERROR), b""),
            doing=(f"{TASK_NAMES[message.part]} for target {source}", ""),
        )

    def _task_reply(self, source: int, message: PeerMessage) -> None:
        del source
        self._calls.receive_reply(message)


def _nothing(source: int, message: PeerMessage) -> None:
    """Ignore a message."""
