"""Something that happens in the middle of a turn, before any line of it that a test chooses."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from tests.support.stepped_broker import SERVING, may_die_in


def interrupted_at_line(
    line: int, turn: Callable[[], object], interrupt: Callable[[], None], where: Sequence[str] = SERVING
) -> bool:
    """Call ``run_once``, and ``interrupt`` before the ``line``-th line of files in ``where``; False if it has fewer."""
    left = line

    def local(frame: FrameType, event: str, arg: Any) -> Any:  # noqa: ARG001 - as sys.settrace has it
        nonlocal left
        if event == "line":
            left -= 1
            if left == 0:
                interrupt()
        return local

    def enter(frame: FrameType, event: str, arg: Any) -> Any:  # noqa: ARG001
        return local if left > 0 and may_die_in(frame.f_code, where) else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        turn()
    finally:
        sys.settrace(before)
    return left <= 0
