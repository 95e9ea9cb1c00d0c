"""Hides optional imports of a package from this process. Pure; used around the import of that package."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without(package: str) -> Iterator[None]:
    """Make imports inside find that `package` is not installed, unless it is loaded already."""
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]  # which is how Python notes that there is none
    try:
        yield
    finally:
        del sys.modules[package]
