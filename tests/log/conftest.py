"""Fixtures that close the descriptors of an abandoned log, as the kernel does for a killed process."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest


def _descriptors() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/fd")}


@pytest.fixture(autouse=True)
def _close_what_was_abandoned(tmp_path: Path) -> Iterator[None]:
    """Close only the test's own files; another thread of this process may have opened others meanwhile."""
    before = _descriptors()
    yield
    for fd in _descriptors() - before:
        with suppress(OSError):
            if Path(f"/proc/self/fd/{fd}").readlink().is_relative_to(tmp_path):
                os.close(fd)
