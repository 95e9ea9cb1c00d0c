"""The signals of the broker: an operator's `kill` commands, recorded for the loop that acts on them.

A signal handler runs between any two instructions, so it only records the signal. The supervisor has `OperatorSignals`,
acts on each record, and forwards the signals that concern other processes. Every child has a `StopFlag`. Children
ignore signals that a terminal sends to the whole group: only the supervisor, whose process id the operator knows,
decides the meaning of a signal. The meanings are documented in docs/command-line.md.
"""

from __future__ import annotations

import contextlib
import os
import signal
import traceback
from collections.abc import Callable
from types import FrameType

#: Sent by the supervisor to a child whose stacks it requests; no terminal sends it.
DUMP_STACKS = signal.SIGRTMIN
#: Sent by the supervisor to its children when the log has another file.
REOPEN_LOG = signal.SIGUSR1

_STOP = (signal.SIGTERM, signal.SIGINT)
_TASKS = (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)

#: Blocked by the supervisor around a fork: a signal that arrives before the child has its own handlers would be lost,
#: or end the child.
HELD_SIGNALS = frozenset((*_STOP, *_TASKS, DUMP_STACKS))


def ignore_tasks() -> None:
    """Ignore signals other than stop until their handlers are installed: by default they end the process."""
    for signum in _TASKS:
        signal.signal(signum, signal.SIG_IGN)


class OperatorSignals:
    """The signals to the supervisor. SIGINT, or any second stop signal, requests a quick stop."""

    def __init__(self) -> None:
        self.stop_asked = False
        self.quick = False
        #: The supervisor's stack when SIGQUIT arrived, innermost frame first.
        self.own_stack: list[str] = []
        self._tasks: list[int] = []
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    @property
    def fds(self) -> tuple[int, int]:
        """Both ends of the pipe; the first is readable after a signal."""
        return self._reader, self._writer

    def install(self) -> None:
        """Install the signal handlers."""
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for signum in _STOP:
            signal.signal(signum, self._note_stop)
        for signum in _TASKS:
            signal.signal(signum, self._note_task)

    def uninstall(self) -> None:
        """Ignore the signals from here on and close the pipe."""
        for signum in (*_STOP, *_TASKS):
            signal.signal(signum, signal.SIG_IGN)
        signal.set_wakeup_fd(-1)
        os.close(self._reader)
        os.close(self._writer)

    def drain(self) -> None:
        """Empty the pipe."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._reader, 512)

    def pending_tasks(self) -> list[int]:
        """Return the other signals since the last call, each once, in order."""
        pending = list(dict.fromkeys(self._tasks))
        del self._tasks[:]
        return pending

    def _note_stop(self, signum: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.quick = self.quick or self.stop_asked or signum == signal.SIGINT
        self.stop_asked = True

    def _note_task(self, signum: int, frame: FrameType | None) -> None:
        if signum == signal.SIGQUIT:
            frames = reversed(traceback.extract_stack(frame))
            self.own_stack = [f"{each.filename}:{each.lineno} in {each.name}" for each in frames]
        self._tasks.append(signum)


class StopFlag:
    """Set by SIGTERM, and checked by the role's loop.

    A signal between a check of `is_set` and the following wait would be missed. So a loop that sleeps in epoll
    registers `fileno()`, which becomes readable at the signal and stays so; a loop that sleeps on a semaphore is safe
    because the supervisor rings its bell after every signal. Another handled signal makes `fileno()` readable for a
    moment: a loop that wakes checks `is_set`.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._tasks: dict[int, Callable[[], None]] = {}
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def is_set(self) -> bool:
        """Return whether the role must finish."""
        return self._is_set

    def set(self) -> None:
        """Set the flag."""
        self._is_set = True
        with contextlib.suppress(BlockingIOError):
            os.write(self._writer, b"!")

    def fileno(self) -> int:
        """Return a descriptor that is readable once the flag is set."""
        return self._reader

    def close(self) -> None:
        """Close both ends of the pipe."""
        os.close(self._reader)
        os.close(self._writer)

    def obey_sigterm(self) -> None:
        """Set this flag on SIGTERM, written in C at the moment of delivery so that no wait can miss it."""
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_stop)

    def obey(self, signum: int, task: Callable[[], None]) -> None:
        """Run `task` on another signal, between any two instructions of the process."""
        self._tasks[signum] = task
        signal.signal(signum, self._on_task)

    def _on_stop(self, signum: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._is_set = True

    def _on_task(self, signum: int, frame: FrameType | None) -> None:  # noqa: ARG002
        with contextlib.suppress(BlockingIOError):
            received = os.read(self._reader, 512)
            # Remove only this signal's byte: restore the one that ends the wait.
            if self._is_set or signal.SIGTERM in received:
                os.write(self._writer, b"!")
        self._tasks[signum]()
