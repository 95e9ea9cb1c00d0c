"""Runs to its end what an API function does in slices."""

from __future__ import annotations

from types import GeneratorType
from typing import Any


def finished(answer: Any) -> Any:
    """Return what an API function answers in the end; nothing that it waits for may come later."""
    if not isinstance(answer, GeneratorType):
        return answer
    sent: Any = None
    try:
        while True:
            waits_for = answer.send(sent)
            sent = None
            if waits_for is not None:
                got: list[Any] = []
                waits_for.bind(got.append)
                [sent] = got
    except StopIteration as stop:
        return finished(stop.value)
