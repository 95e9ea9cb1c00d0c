"""A lock on an output: one run writes at a time, and a second run fails with the name of the first.

On a local file system the kernel holds it (flock), so that it ends with the process, however that dies. Elsewhere it is
a file owned by its creator; a lock whose process on this machine is dead is replaced, any other is named in the error.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from rotunda.spark.failures import JobFailed
from rotunda.spark.file_system import FileSystem

#: A hidden name, so that readers do not treat it as data.
NAME = ".lock"


@contextmanager
def exclusive(file_system: FileSystem, what: str) -> Iterator[None]:
    """Hold the lock of a directory. Raises JobFailed at once when another run holds it, or if it is not writable."""
    local = file_system.local_path
    with _local(local, what) if local is not None else _remote(file_system, what):
        yield


@contextmanager
def _local(directory: Path, what: str) -> Iterator[None]:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        opened = (directory / NAME).open("a+")
    except OSError as error:
        raise JobFailed(f"{error.filename} cannot be written: {error.strerror}") from None
    with opened as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise JobFailed(_held(what, str(directory), file.read())) from None
        file.truncate(0)
        file.write(_owner())
        file.flush()
        yield


@contextmanager
def _remote(file_system: FileSystem, what: str) -> Iterator[None]:
    if not file_system.create(NAME, _owner()):
        owner = file_system.read(NAME)
        advice = f"; if that is gone, remove {file_system.root}/{NAME}"
        if not _is_dead(owner):
            raise JobFailed(_held(what, file_system.root, owner) + advice)
        file_system.remove(NAME)
        if not file_system.create(NAME, _owner()):
            raise JobFailed(_held(what, file_system.root, file_system.read(NAME)) + advice)
    try:
        yield
    finally:
        file_system.remove(NAME)


def _owner() -> str:
    since = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "start": _start_of(os.getpid()), "at": since})


def _held(what: str, root: str, owner: str) -> str:
    try:
        who = json.loads(owner)
        return f"another {what} writes to {root}: process {who['pid']} on {who['host']}, since {who['at']}"
    except (ValueError, KeyError, TypeError):
        return f"another {what} writes to {root}"


def _is_dead(owner: str) -> bool:
    try:
        who = json.loads(owner)
        return bool(who["host"] == socket.gethostname() and who["start"] != _start_of(int(who["pid"])))
    except (ValueError, KeyError, TypeError):
        return False


def _start_of(pid: int) -> str:
    """Return a process's start time, in ticks since the boot; empty if the process does not exist."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
