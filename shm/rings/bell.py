"""Bells: a process that published something wakes the process that waits for it.

Ring after every published batch: leaving it out when the other side seems awake would need a store-load fence. The
waiter consumes the rings first and looks for tasks afterwards, so a ring in between causes one idle pass and is never
lost. A handler sleeps on a `SemaphoreBell`, a processor in epoll on an `EventBell`.
"""

from __future__ import annotations

import os
from contextlib import suppress

import posix_ipc

_SURPLUS_LIMIT = 1024  # rings consumed at one wake-up; more would only delay the announced tasks


class SemaphoreBell:
    """A bell on a POSIX semaphore; any process may ring, one waits."""

    __slots__ = ("_semaphore",)

    def __init__(self, semaphore: posix_ipc.Semaphore) -> None:
        self._semaphore = semaphore

    def ring(self) -> None:
        """Wake the waiter, now or when it next waits. A semaphore at its highest count is rung already."""
        try:  # noqa: SIM105  suppress() would cost more than the ring
            self._semaphore.release()
        except OSError:
            pass

    def take(self) -> bool:
        """Consume all rings without sleeping; return whether there were any. The waiter looks for tasks AFTERWARDS."""
        semaphore = self._semaphore
        rings: int = semaphore.value
        if not rings:
            return False
        # Only this process consumes rings, so at least the counted ones exist.
        for _ in range(min(rings, _SURPLUS_LIMIT)):
            semaphore.acquire(0)
        return True

    def wait(self, timeout_s: float | None) -> bool:
        """Sleep until the bell rings or a signal arrives (True), or the timeout expires (False).

        None means no timeout. The kernel counts it on the wall clock: a step of that clock shortens or stretches one
        wait.
        """
        semaphore = self._semaphore
        try:
            semaphore.acquire(timeout_s)
        except posix_ipc.BusyError:
            return False
        except posix_ipc.SignalError:
            return True
        self.take()
        return True

    def close(self) -> None:
        """Close the semaphore in this process."""
        self._semaphore.close()

    def unlink(self) -> None:
        """Remove its name; not an error when it does not exist."""
        with suppress(posix_ipc.ExistentialError):
            self._semaphore.unlink()


class EventBell:
    """A bell on an eventfd, inherited over fork; its descriptor is added to the waiter's epoll.

    A waiter that is woken by edges need not consume the rings.
    """

    __slots__ = ("_fd",)

    def __init__(self) -> None:
        # Close-on-exec concerns programs that a process starts; a forked role inherits the descriptor.
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def ring(self) -> None:
        """Wake the waiter, now or when it next polls. An eventfd at its highest count is rung already."""
        try:  # noqa: SIM105  suppress() would cost more than the ring
            os.eventfd_write(self._fd, 1)
        except BlockingIOError:
            pass

    def drain(self) -> None:
        """Consume all rings; the waiter calls it BEFORE it looks at the published data."""
        try:  # noqa: SIM105  suppress() would cost more than the read
            os.eventfd_read(self._fd)
        except BlockingIOError:
            pass

    def fileno(self) -> int:
        """Return the descriptor, readable while rung."""
        return self._fd

    def close(self) -> None:
        """Close the descriptor in this process."""
        os.close(self._fd)
