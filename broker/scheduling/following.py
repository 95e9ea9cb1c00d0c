"""Post-processing of a response: the same change for an immediate, a deferred or a sliced one.

Runs in handler processes and the controller.
"""

from __future__ import annotations

from collections.abc import Callable
from types import GeneratorType
from typing import Any

from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.scheduling.slices import Work


def after(response: Any, change: Callable[[Any], Any]) -> Any:
    """Return the response of an API function with ``change`` applied to it, now or when it is complete."""
    if isinstance(response, GeneratorType):
        return _after_work(response, change)
    if isinstance(response, Deferred):
        return _after_deferred(response, change)
    return change(response)


def _after_work(work: Work, change: Callable[[Any], Any]) -> Work:
    return after((yield from work), change)


def _after_deferred(first: Deferred, change: Callable[[Any], Any]) -> Deferred:
    retry = None if first.retry is None else lambda final: first.try_complete(final) and None
    changed = Deferred(first.timeout_ms, retry)
    first.bind(lambda response: changed.complete(after(response, change)))
    return changed
