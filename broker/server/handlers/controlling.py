"""How the APIs that change metadata reach the controller object of the process they run in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from broker.controller import Controller
from broker.errors import ApiError
from broker.server.request_context import RequestContext


def controller_of(context: RequestContext) -> Controller:
    """Return the controller. Only the controller process has one: a request that strays is our bug."""
    controller = context.broker.controller
    if controller is None:
        raise RuntimeError(f"API {context.api_key} is served by the controller only")
    return controller


def request_id_of(context: RequestContext) -> str:
    """Return the text by which the controller knows a request that it is sent again: no other has it in this run."""
    return f"{context.connection_id}-{context.sequence}-{context.received_ns}"


#: Settings or quotas that are changed in one slice, with one change of the metadata.
ALTERED_AT_ONCE = 20

_Asked = TypeVar("_Asked")


def alter_each(
    controller: Controller, asked: Sequence[_Asked], alter: Callable[[_Asked], None]
) -> list[ApiError | None]:
    """Alter several things with one change of the metadata; return for each why it was not altered, or None."""
    failures: list[ApiError | None] = []
    try:
        with controller.together():
            for each in asked:
                try:
                    alter(each)
                except ApiError as error:
                    failures.append(error)
                else:
                    failures.append(None)
    except ApiError as error:
        return [error] * len(asked)
    return failures


#: Topics that are changed in one slice, with one change of the metadata.
TOPICS_AT_ONCE = 50


def part_of(request: str, start: int) -> str:
    """Return the text by which the controller knows the part of a request that begins with its ``start``-th topic."""
    return request if start == 0 else f"{request}-{start}"
