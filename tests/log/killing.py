"""Simulates a process killed between or during two system calls.

Every call of `os` that changes or opens a file counts one step. At the chosen step `Killed` is raised: before the call,
after it, or, for a write, after part of it. The descriptors are closed as the kernel would, without any cleanup.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

STEPS = (
    "open",
    "pwrite",
    "pwritev",
    "write",
    "ftruncate",
    "unlink",
    "replace",
    "rename",
    "link",
    "mkdir",
    "posix_fallocate",
)

BEFORE, AFTER, PARTLY = range(3)


class Killed(BaseException):
    """The process was killed."""


class Killer:
    """Raises `Killed` at one step."""

    def __init__(self, at_step: int, moment: int) -> None:
        self.at_step = at_step
        self.moment = moment
        self.step = 0
        self.fds: dict[int, str] = {}

    def wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.step += 1
            if self.step != self.at_step:
                return self._note(name, real(*args, **kwargs))
            if self.moment == AFTER:
                self._note(name, real(*args, **kwargs))
            elif self.moment == PARTLY and name in ("pwrite", "pwritev", "write"):
                self._partly(name, real, args)
            raise Killed

        return call

    def _note(self, name: str, result: Any) -> Any:
        if name == "open":
            self.fds[result] = _file_of(result)
        return result

    @staticmethod
    def _partly(name: str, real: Callable[..., Any], args: tuple[Any, ...]) -> None:
        data = b"".join(bytes(part) for part in args[1]) if name == "pwritev" else bytes(args[1])
        half = data[: len(data) // 2]
        real(args[0], [half] if name == "pwritev" else half, *args[2:])


def _file_of(fd: int) -> str:
    """Return the device and inode of a descriptor, or "" if it is closed."""
    try:
        found = os.fstat(fd)
    except OSError:
        return ""
    return f"{found.st_dev}:{found.st_ino}"


@contextmanager
def killed_at(step: int, moment: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Killer]:
    """Run the body and kill it at `step`. `killer.step` is the number of executed steps."""
    killer = Killer(step, moment)
    with monkeypatch.context() as patched:
        for name in STEPS:
            patched.setattr(os, name, killer.wrap(name, getattr(os, name)))
        try:
            yield killer
        except Killed:
            for fd, file in killer.fds.items():
                # Another thread may have reused a closed descriptor.
                if _file_of(fd) == file:
                    os.close(fd)
