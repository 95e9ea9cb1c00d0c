"""What one target may ask another to do: a table of named tasks, bytes in, an error code and bytes out.

Runs in handler processes and the controller. The coordinators use it where a group, a transaction or a partition
belongs to another process. Invariants that whoever adds a task keeps: it *replies within the turn in which it is
asked* (a commit of that turn included), because the question is released with that turn and a replacement would not
see it again; and it may be asked twice. Questions of one target to another arrive in the order in which they were put.
"""

from __future__ import annotations

from collections.abc import Callable

#: Called with (Kafka error code, payload) when a task has been done.
TaskDone = Callable[[int, bytes], None]

Task = Callable[[bytes, TaskDone], None]

#: Every task there is; a message carries its place in this list.
TASK_NAMES: tuple[str, ...] = (
    "add_partition_to_transaction",
    "write_marker",
    "call_group_api",
    "describe_transaction",
    "list_groups",
    "list_transactions",
    "describe_producers",
    "next_producer_id",
    "retain_log",
    "swap_segments",
)


class TargetTasks:
    """The tasks that this target can do, and the way to ask another one."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._tasks: dict[int, Task] = {}
        self.send: Callable[[int, int, bytes, TaskDone], None] = _no_peers

    def register(self, name: str, task: Task) -> None:
        """Say what does a task here."""
        self._tasks[TASK_NAMES.index(name)] = task

    def ask(self, target: int, name: str, payload: bytes, done: TaskDone) -> None:
        """Have ``target``, which may be this process, do a task; ``done`` is called now or in a later turn."""
        number = TASK_NAMES.index(name)
        if target == self._index:
            self.do(number, payload, done)
        else:
            self.send(target, number, payload, done)

    def do(self, number: int, payload: bytes, reply: TaskDone) -> None:
        """Do a task that was asked for. Raises KeyError when it is not one of this target's."""
        self._tasks[number](payload, reply)


def _no_peers(target: int, number: int, payload: bytes, done: TaskDone) -> None:
    raise RuntimeError(f"no way to ask target {target} for task {number} ({len(payload)} bytes, {done})")
