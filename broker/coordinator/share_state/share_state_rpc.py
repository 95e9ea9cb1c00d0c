"""The tasks by which a share group's coordinator changes and reads its stored state, and their encoding.

Runs in handler processes. Every task completes in the loop pass in which it arrives, and is idempotent.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from rotunda.broker.coordinator.share_state.records import SharePlace
from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.primitives import read_string, string_bytes
from rotunda.broker.protocol.routing import SHARE_TOPIC

if TYPE_CHECKING:
    from rotunda.broker.coordinator.coordinator_log import Done
    from rotunda.broker.coordinator.locator import CoordinatorLocator
    from rotunda.broker.coordinator.share_state.share_state import ShareStateCoordinator
    from rotunda.broker.scheduling.peer_tasks import TargetTasks, TaskDone

_INITIALIZE: Final = struct.Struct(
    ">16s"  # topic id
    "i"  # state epoch
    "q"  # start offset
)
_SUMMARY: Final = struct.Struct(
    ">i"  # partition
    "q"  # start offset
    "i"  # ended records at or after it, or -1
)
_TOPIC_ID_BYTES: Final = 16
_INT32: Final = struct.Struct(">i")


class ShareSummary(NamedTuple):
    """The stored state of a share partition in short; ``complete_count`` is -1 if unknown."""

    start_offset: int
    complete_count: int


#: Called with an error code, and by partition the state of those that have any.
Summarized = Callable[[int, dict[int, ShareSummary]], None]


class ShareStateRpc:
    """Sends one target's tasks about the state of share groups. `done` is called now or in a later loop pass."""

    def __init__(self, tasks: TargetTasks, locator: CoordinatorLocator) -> None:
        self._tasks = tasks
        self._locator = locator

    def initialize(
        self, group_id: str, topic_id: bytes, partitions: Sequence[int], state_epoch: int, start_offset: int, done: Done
    ) -> None:
        """Set the start offset of partitions and discard their earlier state. FENCED_STATE_EPOCH for an old epoch."""
        payload = _INITIALIZE.pack(topic_id, state_epoch, start_offset) + _int32s(partitions)
        self._ask("share_initialize", group_id, payload, lambda error, _: done(error))

    def delete(self, group_id: str, topic_ids: Sequence[bytes], done: Done) -> None:
        """Delete the state of all partitions of topics."""
        self._ask("share_delete", group_id, b"".join(topic_ids), lambda error, _: done(error))

    def summary(self, group_id: str, topic_id: bytes, partitions: Sequence[int], done: Summarized) -> None:
        """Read the state of partitions."""

        def completed(error: int, payload: bytes) -> None:
            found = _SUMMARY.iter_unpack(payload)
            done(error, {partition: ShareSummary(start, complete) for partition, start, complete in found})

        self._ask("share_summary", group_id, topic_id + _int32s(partitions), completed)

    def _ask(self, task: str, group_id: str, payload: bytes, done: TaskDone) -> None:
        target = self._locator.owner_of(SHARE_TOPIC, group_id)
        self._tasks.ask(target, task, string_bytes(group_id) + payload, done)


class ShareStateTasks:
    """Runs the tasks sent to one handler."""

    def __init__(self, tasks: TargetTasks, states: ShareStateCoordinator) -> None:
        self._states = states
        tasks.register("share_initialize", self._initialize)
        tasks.register("share_delete", self._delete)
        tasks.register("share_summary", self._summary)

    def _initialize(self, payload: bytes, reply: TaskDone) -> None:
        group_id, at = read_string(payload, 0, len(payload))
        topic_id, state_epoch, start_offset = _INITIALIZE.unpack_from(payload, at)
        places = [SharePlace(topic_id, partition) for partition in _read_int32s(payload, at + _INITIALIZE.size)]
        try:
            shard = self._states.shard_of(group_id)
        except ApiError as error:
            reply(error.code, b"")
            return
        shard.initialize(group_id, places, state_epoch, start_offset, lambda error: reply(error, b""))

    def _delete(self, payload: bytes, reply: TaskDone) -> None:
        group_id, at = read_string(payload, 0, len(payload))
        topic_ids = [payload[begin : begin + _TOPIC_ID_BYTES] for begin in range(at, len(payload), _TOPIC_ID_BYTES)]
        try:
            shard = self._states.shard_of(group_id)
        except ApiError as error:
            reply(error.code, b"")
            return
        shard.delete(group_id, topic_ids, lambda error: reply(error, b""))

    def _summary(self, payload: bytes, reply: TaskDone) -> None:
        group_id, at = read_string(payload, 0, len(payload))
        topic_id = payload[at : at + _TOPIC_ID_BYTES]
        try:
            shard = self._states.shard_of(group_id)
        except ApiError as error:
            reply(error.code, b"")
            return
        found = []
        for partition in _read_int32s(payload, at + _TOPIC_ID_BYTES):
            state = shard.state(group_id, SharePlace(topic_id, partition))
            if state is not None:
                found.append(_SUMMARY.pack(partition, state.start_offset, state.complete_count))
        shard.when_committed(lambda error: reply(error, b"".join(found)))


def _int32s(numbers: Sequence[int]) -> bytes:
    return struct.pack(f">{len(numbers)}i", *numbers)


def _read_int32s(payload: bytes, at: int) -> list[int]:
    return [number for (number,) in _INT32.iter_unpack(payload[at:])]
