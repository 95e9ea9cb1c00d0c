"""How the APIs that change metadata reach the controller object of the process they run in."""

from __future__ import annotations

from broker.controller import Controller
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


#: Topics that are changed in one slice, with one change of the metadata.
TOPICS_AT_ONCE = 50


def part_of(request: str, start: int) -> str:
    """Return the text by which the controller knows the part of a request that begins with its ``start``-th topic."""
    return request if start == 0 else f"{request}-{start}"
