"""The tasks that one target may call in another: a table by name, bytes in, an error code and bytes out (``E22``).

Runs in handler processes and the controller. The coordinators use it if a group, a transaction or a partition belongs
to another process. Any task may be called twice. There are two kinds:

- Most *reply within the turn in which they are called* (a commit of that turn included), because the message is
  released with that turn and a replacement would not see it again. Messages of one target to another arrive in the
  order in which they were sent, and are handled in that order.
- A task that may be long is a generator, run in slices (`slices`), which returns its reply. Its caller repeats it
  when its target is replaced (`peer_rpc`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.scheduling.slices import Work

#: Called with (Kafka error code, payload) when a task is done.
TaskDone = Callable[[int, bytes], None]

Task = Callable[[bytes, TaskDone], None]

#: Returns (Kafka error code, payload).
SlicedTask: TypeAlias = Callable[[bytes], Work]


class Send(Protocol):
    """Sends a task to another target."""

    def __call__(self, target: int, number: int, payload: bytes, done: TaskDone, *, is_sliced: bool) -> None:
        """Send a task by its number to ``target``; ``done`` is called in a later turn."""


#: Every task; a message carries the index in this list.
TASK_NAMES: tuple[str, ...] = (
    "add_partition_to_transaction",
    "write_marker",
    "call_group_api",
    "create_topic",
    "delete_records",
    "describe_transaction",
    "list_groups",
    "list_transactions",
    "describe_producers",
    "next_producer_id",
    "retain_log",
    "swap_segments",
    "share_initialize",
    "share_delete",
    "share_summary",
    "append_dead_letters",
    "create_dead_letter_topic",
)


class TargetTasks:
    """The tasks that this target can run, and the calls to other targets."""

    def __init__(self, index: int, send: Send) -> None:
        self._index = index
        self._send = send
        self._tasks: dict[int, Task] = {}
        self._sliced: dict[int, SlicedTask] = {}

    def register(self, name: str, task: Task) -> None:
        """Register the function of a task."""
        self._tasks[TASK_NAMES.index(name)] = task

    def register_sliced(self, name: str, task: SlicedTask) -> None:
        """Register the function of a task that runs in slices."""
        self._sliced[TASK_NAMES.index(name)] = task

    def ask(self, target: int, name: str, payload: bytes, done: TaskDone) -> None:
        """Run a task in ``target``, which may be this process; ``done`` is called now or in a later turn."""
        number = TASK_NAMES.index(name)
        if target == self._index:
            self.do(number, payload, done)
        else:
            self._send(target, number, payload, done, is_sliced=False)

    def reply_of(self, target: int, name: str, payload: bytes) -> Work:
        """Return a generator that returns (error code, payload) of a sliced task; another target starts immediately."""
        number = TASK_NAMES.index(name)
        if target == self._index:
            return self._sliced[number](payload)
        answered = Deferred()
        self._send(target, number, payload, lambda error, answer: answered.complete((error, answer)), is_sliced=True)
        return _waited_for(answered)

    def do(self, number: int, payload: bytes, reply: TaskDone) -> None:
        """Run a task of another target. Raises KeyError if this target does not have it."""
        self._tasks[number](payload, reply)

    def sliced(self, number: int, payload: bytes) -> Work | None:
        """Return the generator of a sliced task; None if the task is of the other kind."""
        task = self._sliced.get(number)
        return None if task is None else task(payload)


def _waited_for(answered: Deferred) -> Work:
    answer = yield answered
    return answer
