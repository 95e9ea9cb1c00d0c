"""The frame of a child process around its role: signals, death with its parent, descriptors.

Runs in every child, first thing after the fork. It knows how a child starts and ends, and not its purpose: the role is
a function, called here with the context, its index, its generation and its stop flag. The last error of a failing child
is stored in its slot.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

from rotunda.broker.errors import BootFailed
from rotunda.broker.ipc.process_context import close_all
from rotunda.broker.runtime.boot_failures import describe_shortage
from rotunda.broker.runtime.signals import HELD_SIGNALS, REOPEN_LOG, StopFlag
from rotunda.broker.server_log import log_setup
from rotunda.shm.tables.process_slots import ROLES

if TYPE_CHECKING:
    from rotunda.broker.ipc.process_context import ProcessContext
    from rotunda.broker.runtime.stack_dumps import StackPipe
    from rotunda.broker.server_log.log_file import LogFile

_log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15


#: Failed turns of a role's loop in a row after which the process exits for a replacement, since the fault does not
#: pass.
MOST_FAULTS = 20

#: Longest pause of a loop after a fault. There is no pause after the first one: other requests wait for the unfinished
#: turn, and most faults concern one request only.
LONGEST_FAULT_PAUSE_S = 0.3


class ExitCode(IntEnum):
    """Exit codes of the command line, and (from 64) exit codes of a child for the supervisor.

    A child that cannot boot adds to BOOT_FAILED the code that the whole program should end with.
    """

    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_RUNNING = 3
    IN_USE = 4
    NEWER_DATA = 5
    #: The role is idle, and a fresh process would wait with less memory.
    RETIRED = 63
    BOOT_FAILED = 64
    ORPHANED = 80


class Retired(Exception):  # noqa: N818  named for what is the case
    """Raised by a role that exits for a fresh process of its own; it counts neither as a death nor as a restart."""


class Role(IntEnum):
    """The role of a process; the numbers are stored in its slot."""

    SUPERVISOR = 0
    ACCEPTOR = 1
    PROCESSOR = 2
    HANDLER = 3
    CONTROLLER = 4
    CLEANER = 5
    RECORDER = 6
    WEB = 7

    @property
    def label(self) -> str:
        """The name in status and log lines."""
        return ROLES[self]


class FaultLimit:
    """Lets the loop of a role continue after an internal fault, within a limit: ``with faults: turn()``.

    A fault is logged and the loop continues. The last of MOST_FAULTS in a row is raised.
    """

    __slots__ = ("_in_a_row", "_logger", "_passing", "_where")

    def __init__(self, logger: logging.Logger, where: str, passing: tuple[type[Exception], ...] = ()) -> None:
        """Log the loop as ``where``. Exceptions that are ``passing`` are not faults and are raised."""
        self._logger = logger
        self._where = where
        self._passing = passing
        self._in_a_row = 0

    @property
    def pause_s(self) -> float:
        """The pause before the loop's next turn: 0 after a turn without a fault and after a first fault."""
        return min(0.001 * 2 ** (self._in_a_row - 2), LONGEST_FAULT_PAUSE_S) if self._in_a_row > 1 else 0.0

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, fault: BaseException | None, trace: object) -> bool:
        if fault is None:
            self._in_a_row = 0
            return False
        if not isinstance(fault, Exception) or isinstance(fault, self._passing):
            return False
        self._logger.error("fault in %s", self._where, exc_info=fault)
        self._in_a_row += 1
        return self._in_a_row < MOST_FAULTS


RoleFunction = Callable[["ProcessContext", int, int, StopFlag], None]


def run_child(
    role: Role,
    index: int,
    generation: int,
    context: ProcessContext,
    function: RoleFunction,
    foreign_fds: Iterable[int],
    stacks: StackPipe,
) -> None:
    """Set up the child, run its role, and leave by SystemExit with an ExitCode. Closes `foreign_fds`."""
    stop = StopFlag()
    try:
        stacks.install()
        _become(role, index, stop, context.log_output.file)
        die_with(context.supervisor_pid)
        log_setup.configure(role.label, index, context.log_output.line_format, after_line=context.after_log_line)
        keep_only_own(context, role, index, foreign_fds)
        function(context, index, generation, stop)
    except Retired:
        sys.exit(ExitCode.RETIRED)
    except BootFailed as failure:
        context.slots.set_last_error(role, index, failure.reason)
        sys.exit(ExitCode.BOOT_FAILED + failure.exit_code)
    except Exception as failure:  # the child's outermost frame: every failure is recorded
        shortage = describe_shortage(failure)
        if shortage is None:
            _log.error("the process ends with an error", exc_info=failure)
        context.slots.set_last_error(role, index, shortage or _describe(failure))
        sys.exit(ExitCode.FAILURE)
    finally:
        log_setup.report_held_back(at_last=True)
    sys.exit(ExitCode.OK)


def _become(role: Role, index: int, stop: StopFlag, log_file: LogFile | None) -> None:
    """Set the child's name and signals; children ignore signals to the whole group."""
    # The inherited pages stay shared with other processes until a collection touches them.
    gc.freeze()
    gc.enable()
    name_process(f"rot-{role.label}-{index}" if role in {Role.PROCESSOR, Role.HANDLER} else f"rot-{role.label}")
    signal.set_wakeup_fd(-1)
    for signum in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(signum, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    stop.obey_sigterm()
    if log_file is not None:
        stop.obey(REOPEN_LOG, log_file.open)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_SIGNALS)


def die_with(parent_pid: int, signum: int = signal.SIGKILL) -> None:
    """Request a signal from the kernel when the parent dies; exit immediately if it is dead already."""
    _prctl(_PR_SET_PDEATHSIG, signum)
    if os.getppid() != parent_pid:
        sys.exit(ExitCode.ORPHANED)


def name_process(name: str) -> None:
    """Set the name that `ps` and `top` show; the kernel stores 15 bytes."""
    _prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()[:15]))


def _prctl(option: int, argument: object) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, argument, 0, 0, 0)


def keep_only_own(context: ProcessContext, role: Role, index: int, foreign_fds: Iterable[int]) -> None:
    """Close this child's copies of everything that its role does not use.

    A listening port must close when supervisor and acceptor have ended, and a client's connection when its processor
    has, so no other process may hold either. Event bells stay open everywhere: any target rings any processor.
    """
    if role is not Role.ACCEPTOR:
        close_all(listener.socket for listener in context.listeners)
        close_all((*(acceptor_end for acceptor_end, _ in context.handoff), context.listener_orders[1]))
    context.listener_orders[0].close()
    if role is not Role.WEB and context.status_socket is not None:
        context.status_socket.close()
    for number, (_, processor_end) in enumerate(context.handoff):
        if not (role is Role.PROCESSOR and number == index):
            processor_end.close()
    unused_spill = context.spill_fds if role in {Role.ACCEPTOR, Role.CLEANER, Role.RECORDER, Role.WEB} else ()
    close_all((), (*unused_spill, *foreign_fds))


def _describe(failure: BaseException) -> str:
    frames = traceback.extract_tb(failure.__traceback__)
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(failure).__name__}: {failure}{where}"
