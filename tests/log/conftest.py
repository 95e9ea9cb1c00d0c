"""What the kernel does for a killed process: it closes the descriptors that an abandoned log had open."""

import os
from collections.abc import Iterator
from contextlib import suppress

import pytest


def _descriptors() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/fd")}


@pytest.fixture(autouse=True)
def _close_what_was_abandoned() -> Iterator[None]:
    before = _descriptors()
    yield
    for fd in _descriptors() - before:
        with suppress(OSError):
            os.close(fd)
