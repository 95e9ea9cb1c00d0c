"""Producers in a child that was forked: the I/O thread is in the parent alone, and locks may be held by nobody.

A producer is told in the child, before anything else runs there, and refuses what it cannot do. Runs in the user's
process.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Forked(Protocol):
    """What is of no use in a child."""

    def was_forked(self) -> None:
        """Refuse everything from now on, without taking a lock."""


_WATCHED: WeakSet[Forked] = WeakSet()


def watch(made: Forked) -> None:
    """Have `was_forked` called in each child."""
    _WATCHED.add(made)


def _in_child() -> None:
    for each in list(_WATCHED):
        each.was_forked()


os.register_at_fork(after_in_child=_in_child)
