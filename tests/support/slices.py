"""Runs an API function with slices to its end."""

from __future__ import annotations

from types import GeneratorType
from typing import Any


def finished(answer: Any) -> Any:
    """Return the final response of an API function; nothing it waits for may be delayed."""
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
