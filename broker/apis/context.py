"""What an API function is told about one request, and the ways it may put off its answer.

Runs in handler processes and in the controller, which is a handler of the metadata APIs. Knows nothing of sockets
nor of rings: the connection is a number, the answer a return value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broker.handler.broker_state import BrokerState
    from broker.ipc.process_context import BoundListener


@dataclass(slots=True, frozen=True)
class RequestContext:
    """Who asked, on which connection, through which listener, and when (``received_ns``: monotonic)."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    connection_id: int
    sequence: int
    listener: BoundListener
    received_ns: int
    broker: BrokerState


@dataclass(slots=True)
class Parked:
    """An answer that waits for another process.

    ``retry(final)`` is called after every change that may have ended the wait and returns the response, or None to
    go on waiting; once ``timeout_ms`` has passed it is called with ``final=True`` and must return a response.
    """

    timeout_ms: int
    retry: Callable[[bool], Any]


@dataclass(slots=True)
class PendingAnswer:
    """A question put to the owner of a partition; ``done`` turns true when its answer has arrived."""

    done: bool = False
    error_code: int = 0
    value: int = -1
