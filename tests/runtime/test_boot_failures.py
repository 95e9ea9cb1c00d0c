"""A start that the machine does not allow logs one line: event, value, remedy."""

import errno
import os
import resource
from pathlib import Path

import pytest

from rotunda.broker.errors import BootFailed
from rotunda.broker.runtime.boot_failures import boot_failures, describe_shortage


def of(number: int, path: str | None = None) -> OSError:
    return OSError(number, os.strerror(number), path)


def line_of(failure: BaseException, what: str = "data directory /data cannot be used") -> str:
    with pytest.raises(BootFailed) as raised, boot_failures(what):
        raise failure
    assert raised.value.exit_code == 1
    return str(raised.value)


@pytest.mark.parametrize(
    ("failure", "line"),
    [
        (of(errno.EROFS, "/data/.lock"), "Read-only file system (/data/.lock); make it writable for the broker's user"),
        (of(errno.EACCES, "/data"), f"Permission denied; make it writable for the broker's user (uid {os.geteuid()})"),
        (of(errno.ENOSPC), "No space left on device; free some space there"),
        (of(errno.EEXIST, "/data"), "File exists; choose another directory: this is a file"),
        (of(errno.ENAMETOOLONG, "/data"), "File name too long; choose a shorter path"),
        (of(errno.EIO, "/data/x"), "Input/output error (/data/x)"),
    ],
)
def test_a_directory_that_cannot_be_used_is_named(failure: OSError, line: str) -> None:
    assert line_of(failure).startswith(f"data directory /data cannot be used: {line}")


def test_a_limit_is_named_with_its_value() -> None:
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert f"the limit is {descriptors}, and this broker needs 1024 or more; raise it (ulimit -n" in line_of(
        of(errno.EMFILE, "/data/x")
    )
    assert "fs.file-max" in line_of(of(errno.ENFILE))
    assert line_of(MemoryError()) == line_of(of(errno.ENOMEM))
    line = line_of(of(errno.EAGAIN))
    assert line.startswith("no process or thread can be started: the limit of this user is")
    # As Python has it for a thread.
    assert describe_shortage(RuntimeError("can't start new thread")) == line


def test_a_limited_address_space_is_named_with_its_value() -> None:
    _, hard = before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 45, hard))
    try:
        assert f"limited to {1 << 45} bytes; raise the limit (ulimit -v" in line_of(MemoryError())
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_what_is_no_limit_passes_where_no_directory_is_named() -> None:
    """So that a fault of the broker keeps its traceback."""
    with pytest.raises(FileNotFoundError), boot_failures():
        Path("/nowhere/at/all").read_text()
    assert describe_shortage(ValueError("x")) is None
    with pytest.raises(ValueError, match="x"), boot_failures("data directory"):
        raise ValueError("x")
