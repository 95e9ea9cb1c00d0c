"""One child process of the broker, as seen by the supervisor: its slot, its current process, its restarts.

Runs in the supervisor, which decides how to handle a death; this module starts, stops and reaps processes. A child's
slot in shared memory is written by this module and by the child, each its own words (`shm.layout`).
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rotunda.broker.import_guard import without
from rotunda.broker.runtime.child_process import ExitCode, Role, RoleFunction, run_child
from rotunda.broker.runtime.signals import HELD_SIGNALS
from rotunda.broker.runtime.stack_dumps import StackPipe
from rotunda.shm.tables import process_slots

# It pickles data for spawned processes with dill. Children are forked, so nothing is pickled.
with without("dill"):
    import multiprocess

if TYPE_CHECKING:
    from rotunda.broker.ipc.process_context import ProcessContext

_FORK = multiprocess.get_context("fork")


class Child:
    """A role's process, and its replacements. `label` is its name in log lines and errors."""

    def __init__(self, role: Role, index: int, functions: Mapping[Role, RoleFunction], context: ProcessContext) -> None:
        self.role = role
        self.index = index
        self.label = f"{role.label} {index}" if role in {Role.PROCESSOR, Role.HANDLER} else role.label
        self.generation = 0
        self.restarts = 0
        self.ready = False
        #: Whether its last process ended as requested while the broker continues.
        self.has_left = False
        #: The pipe for its process's stacks, written on request or on a fault in C.
        self.stacks = StackPipe()
        self._functions = functions
        self._context = context
        self._process: Any = None
        #: Times of the recent restarts, with the number of requests served by then.
        self._restarted: deque[tuple[int, int]] = deque()
        #: Time of a delayed restart; 0: none.
        self.restart_due_ns = 0
        #: Time of the last restart.
        self.replaced_ns = 0

    @property
    def is_alive(self) -> bool:
        """Whether a process was started and its death has not been noticed yet."""
        return self._process is not None

    @property
    def sentinel(self) -> int:
        """A descriptor that becomes readable when the process dies; only while it is alive."""
        return int(self._process.sentinel)

    @property
    def pid(self) -> int:
        """The process id; only while it is alive."""
        return int(self._process.pid)

    @property
    def target_index(self) -> int:
        """The index passed to its role function; for controller and cleaner the peer index, after the handlers."""
        places = {Role.CONTROLLER: self._context.controller, Role.CLEANER: self._context.cleaner}
        return places.get(self.role, self.index)

    @property
    def last_error(self) -> str:
        """The last error of the last process that died of an error."""
        return self._context.slots.last_error(self.role, self.index)

    def start(self, foreign_fds: Iterable[int]) -> None:
        """Fork the next generation; the child closes the supervisor's own `foreign_fds`. Raises OSError."""
        slots = self._context.slots
        self.generation += 1
        self.restart_due_ns = 0
        self.ready = self.has_left = False
        slots.set_generation(self.role, self.index, self.generation)
        slots.set_state(self.role, self.index, process_slots.STARTING)
        process = _FORK.Process(
            target=run_child,
            args=(
                self.role,
                self.target_index,
                self.generation,
                self._context,
                self._functions[self.role],
                tuple(foreign_fds),
                self.stacks,
            ),
            name=f"rotunda-{self.role.label}-{self.index}",
            daemon=True,
        )
        signal.pthread_sigmask(signal.SIG_BLOCK, HELD_SIGNALS)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_SIGNALS)
        self._process = process
        slots.set_pid(self.role, self.index, self._process.pid)

    def notice_ready(self) -> bool:
        """Return True once per generation: when it is ready for the first time."""
        slots = self._context.slots
        if self.ready or slots.ready_generation(self.role, self.index) != self.generation:
            return False
        self.ready = True
        slots.set_state(self.role, self.index, process_slots.RUNNING)
        return True

    def reap(self, expected: bool) -> int:
        """Reap the dead process and return its exit status: a code, or minus the signal that killed it."""
        self._process.join()
        status = int(self._process.exitcode)
        self._process.close()
        self._process = None
        self.ready = False
        slots = self._context.slots
        if status != ExitCode.RETIRED:
            slots.set_exit_status(self.role, self.index, status)
        slots.set_state(self.role, self.index, process_slots.STOPPED if expected else process_slots.DEAD)
        return status

    def count_restart(self, now_ns: int, window_ns: int, served: int) -> tuple[int, int]:
        """Record a restart at `now_ns`, with the number of requests `served` by then.

        Return the number of restarts within the window, this one included, and the requests served by the first of
        them.
        """
        self.restarts += 1
        self._context.slots.set_restarts(self.role, self.index, self.restarts)
        self._restarted.append((now_ns, served))
        while self._restarted[0][0] <= now_ns - window_ns:
            self._restarted.popleft()
        return len(self._restarted), self._restarted[0][1]

    def ask_to_stop(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def send_signal(self, signum: signal.Signals) -> None:
        """Send a signal, then ring the bell: a signal just before a wait begins does not end that wait."""
        self.kill(signum)
        if self.role is Role.PROCESSOR:
            self._context.processor_bells[self.index].ring()
        elif self.role in {Role.HANDLER, Role.CONTROLLER, Role.CLEANER}:
            self._context.target_bells[self.target_index].ring()
        elif self.role is Role.RECORDER:
            self._context.recorder_bell.ring()

    def kill(self, signum: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to the process, if it still exists."""
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signum)


def make_children(context: ProcessContext, functions: Mapping[Role, RoleFunction]) -> list[Child]:
    """Return the children in slot order: acceptor, processors, handlers, controller, cleaner, recorder, web."""
    counts = {
        Role.ACCEPTOR: 1,
        Role.PROCESSOR: context.started_processors,
        Role.HANDLER: context.started_handlers,
        Role.CONTROLLER: 1,
        Role.CLEANER: 1,
        Role.RECORDER: 1,
        Role.WEB: 1 if context.status_socket is not None else 0,
    }
    return [Child(role, index, functions, context) for role, count in counts.items() for index in range(count)]


def describe_exit(status: int) -> str:
    """Return an exit status in words."""
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    if boot_exit_code(status) is not None:
        return "could not start"
    return f"ended with exit code {status}"


def boot_exit_code(status: int) -> int | None:
    """Return the program's exit code if `status` is that of a child that could not boot, else None."""
    if ExitCode.BOOT_FAILED <= status < ExitCode.ORPHANED:
        return status - ExitCode.BOOT_FAILED
    return None
