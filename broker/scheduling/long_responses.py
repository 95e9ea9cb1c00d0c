"""Responses with any number of elements: built as they are encoded, in slices, and rejected if they are too long.

Runs in handler processes and the controller, for the functions of the APIs.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.scheduling.slices import Work
from rotunda.broker.steps import Steps

#: Error of an element that would make its response longer than `response.max.bytes`.
TOO_LONG: Final = int(ErrorCode.POLICY_VIOLATION)
TOO_LONG_MESSAGE: Final = "The response would exceed response.max.bytes: request less at a time."

#: Cheap steps between two yields: about half a millisecond.
AT_ONCE: Final = 256

_SORTED_AT_ONCE: Final = 2048

_T = TypeVar("_T")


def at_length(response: Any) -> Work:
    """Return a response that must be encoded in slices."""
    yield None
    return response


def each_of(items: Iterable[_T], act: Callable[[_T], None]) -> Steps[None]:
    """Call a cheap function on each of many items, in slices."""
    for number, item in enumerate(items, 1):
        act(item)
        if not number % AT_ONCE:
            yield


def in_order(items: list[Any]) -> Steps[list[Any]]:
    """Return any number of items sorted, in slices."""
    runs = []
    for start in range(0, len(items), _SORTED_AT_ONCE):
        runs.append(sorted(items[start : start + _SORTED_AT_ONCE]))
        yield
    merged: list[Any] = []
    yield from each_of(heapq.merge(*runs), merged.append)
    return merged
