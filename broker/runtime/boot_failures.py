"""Startup failures caused by the machine, as one line: the event, the value seen, and the remedy.

Used at the start of each process of the broker. An exceeded limit (descriptors, memory, processes) is described here
for every caller; an unusable directory is described by the caller, which knows its purpose.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

from rotunda.broker.errors import BootFailed

#: Remedies for a failed file or directory, by error number.
_ADVICE = {
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "make it writable for the broker's user (uid {uid})"),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "free some space there"),
    **dict.fromkeys((errno.EEXIST, errno.ENOTDIR), "choose another directory: this is a file"),
    errno.ENAMETOOLONG: "choose a shorter path",
}

#: The interpreter's own message.
_NO_THREAD = "can't start new thread"


def describe_shortage(failure: BaseException) -> str | None:
    """Return a description of the exceeded limit, and the remedy; None for a failure of another kind."""
    number = failure.errno if isinstance(failure, OSError) else None
    if number == errno.EMFILE:
        return few_descriptors(soft_limit(resource.RLIMIT_NOFILE))
    if number == errno.ENFILE:
        return "no file can be opened: the whole machine has no descriptors left; raise fs.file-max (sysctl)"
    if isinstance(failure, MemoryError) or number == errno.ENOMEM:
        limit = soft_limit(resource.RLIMIT_AS)
        if limit is None:
            return "no memory: the machine, or the control group of the broker, has none left"
        return little_address_space(limit)
    if number == errno.EAGAIN or (isinstance(failure, RuntimeError) and str(failure) == _NO_THREAD):
        limit = soft_limit(resource.RLIMIT_NPROC)
        return (
            f"no process or thread can be started: the limit of this user is {limit}; raise it "
            "(ulimit -u, LimitNPROC and TasksMax in systemd, --pids-limit of a container)"
        )
    return None


def few_descriptors(limit: int | None, least: int = 1024) -> str:
    """Return the error line for a process that may not open as many files as the broker needs."""
    return (
        f"too few files may be open: the limit is {limit}, and this broker needs {least} or more; raise it (ulimit -n, "
        "LimitNOFILE in systemd)"
    )


def little_address_space(limit: int, need: str = "") -> str:
    """Return the error line for a process that may not map as much memory as the broker needs."""
    return (
        f"no memory: the address space of each process is limited to {limit} bytes{need}; raise the limit (ulimit -v, "
        "LimitAS in systemd)"
    )


@contextmanager
def boot_failures(task: str | None = None) -> Iterator[None]:
    """Raise BootFailed with one line for a failure that the machine causes in the block.

    `task` begins the line for a file or directory ("data directory /x cannot be used"). Without it only failures of a
    limit are converted.
    """
    try:
        yield
    except (OSError, MemoryError) as failure:
        line = describe_shortage(failure)
        if line is None and task is not None and isinstance(failure, OSError):
            line = _about_file(task, failure)
        if line is None:
            raise
        raise BootFailed(line) from failure


def _about_file(task: str, failure: OSError) -> str:
    place = f" ({failure.filename})" if failure.filename and str(failure.filename) not in task else ""
    advice = _ADVICE.get(failure.errno or 0)
    return f"{task}: {failure.strerror or failure}{place}" + (f"; {advice.format(uid=os.geteuid())}" if advice else "")


def soft_limit(kind: int) -> int | None:
    """Return a limit of this process; None if there is none."""
    limit = resource.getrlimit(kind)[0]
    return None if limit == resource.RLIM_INFINITY else limit
