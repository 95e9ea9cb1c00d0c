"""The operator's tasks, requested by signals: stacks of every process, a new log file, a configuration reload.

Runs in the supervisor's loop after every sleep. One task per signal; the log file is also rotated
without a signal when it is full or old.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from rotunda.broker.runtime.child_process import Role
from rotunda.broker.runtime.signals import REOPEN_LOG
from rotunda.broker.runtime.stack_dumps import RESPONSE_MS, kernel_state
from rotunda.broker.server_log.log_setup import tag_of
from rotunda.broker.server_log.rate_limit import UNLIMITED
from rotunda.broker.text_table import counted

if TYPE_CHECKING:
    from rotunda.broker.clock import Clock
    from rotunda.broker.runtime.signals import OperatorSignals
    from rotunda.broker.server_log.log_file import LogFile
    from rotunda.broker.supervisor.child import Child

_log = logging.getLogger(__name__)

#: Delay after a failed rotation.
_TRY_AGAIN_MS = 60_000


class OperatorTasks:
    """Runs the tasks of the signals. `run_once` runs all that are due; `wait_ms` returns the time until a rotation."""

    def __init__(
        self, signals: OperatorSignals, children: Sequence[Child], log_file: LogFile | None, clock: Clock
    ) -> None:
        self._signals = signals
        self._children = children
        self._log_file = log_file
        self._clock = clock
        self._rotate_from_ms = 0
        self._tasks: Mapping[int, Callable[[], None]] = {
            signal.SIGHUP: self._reload,
            signal.SIGQUIT: self._dump_stacks,
            signal.SIGUSR1: self._reopen_log,
            signal.SIGUSR2: self._nothing,
        }

    def run_once(self) -> None:
        """Run the tasks requested since the last call, and rotate the log file if due."""
        for signum in self._signals.pending_tasks():
            self._tasks[signum]()
        log_file, now_ms = self._log_file, self._clock.wall_ms()
        if log_file is not None and now_ms >= self._rotate_from_ms and (log_file.is_full() or log_file.is_old(now_ms)):
            self._rotate(log_file, now_ms)

    def wait_ms(self) -> float | None:
        """Return the time until the next rotation, or None without one."""
        if self._log_file is None:
            return None
        now_ms = self._clock.wall_ms()
        wait_ms = self._log_file.wait_ms(now_ms)
        return None if wait_ms is None else max(wait_ms, self._rotate_from_ms - now_ms)

    def _dump_stacks(self) -> None:
        """Log a line for each process: all are signalled at once, so that the lines belong together."""
        alive = [child for child in self._children if child.is_alive]
        for child in alive:
            child.stacks.ask(child.pid)
        own = " | ".join(self._signals.own_stack)
        _log.info("stacks of %s: %s", tag_of(Role.SUPERVISOR.label, os.getpid()), own, extra=UNLIMITED)
        deadline_ns = self._clock.monotonic_ns() + RESPONSE_MS * 1_000_000
        for child in alive:
            log_stacks(child, max(0, deadline_ns - self._clock.monotonic_ns()) // 1_000_000)

    def _reopen_log(self) -> None:
        if self._log_file is None:
            _log.info("SIGUSR1: ignored, the log is standard error")
            return
        try:
            self._log_file.open()
        except OSError as error:
            _log.warning("SIGUSR1: cannot open %s, the log continues in its old file: %s", self._log_file.path, error)
            return
        self._signal_children()
        _log.info("SIGUSR1: reopened the log")

    def _rotate(self, log_file: LogFile, now_ms: int) -> None:
        try:
            log_file.rotate()
        except OSError as error:
            self._rotate_from_ms = now_ms + _TRY_AGAIN_MS
            _log.warning("cannot rotate %s, it continues to grow: %s", log_file.path, error)
            return
        self._signal_children()
        _log.info("rotated the log file, kept %s", counted(log_file.kept_files, "older file"))

    def _signal_children(self) -> None:
        for child in self._children:
            if child.is_alive:
                child.kill(REOPEN_LOG)

    def _reload(self) -> None:
        [controller] = (child for child in self._children if child.role is Role.CONTROLLER)
        if controller.is_alive and controller.ready:
            _log.info("SIGHUP: the controller reloads the configuration file")
            controller.send_signal(signal.SIGHUP)
        else:
            _log.warning("SIGHUP: ignored, the controller is restarting; try again")

    def _nothing(self) -> None:
        _log.info("SIGUSR2: ignored, it has no meaning")


def report_where(child: Child) -> None:
    """Log the stacks of a hanging child."""
    child.stacks.ask(child.pid)
    log_stacks(child)


def log_stacks(child: Child, wait_ms: int = RESPONSE_MS) -> None:
    """Log the stacks requested from a child, or the reason why it does not respond."""
    stacks = child.stacks.answer(wait_ms)
    if stacks:
        _log.info("stacks of %s: %s", tag_of(child.role.label, child.pid), stacks, extra=UNLIMITED)
    else:
        known = kernel_state(child.pid)
        _log.warning("%s (pid %d) has not written its stacks: %s", child.label, child.pid, known, extra=UNLIMITED)
