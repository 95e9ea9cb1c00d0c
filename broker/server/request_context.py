"""What an API function is told about one request, and the ways it may put off its answer.

Runs in handler processes and in the controller, which is a handler of the metadata APIs. Knows nothing of sockets
nor of rings: the connection is a number, the answer a return value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broker.heritage import BoundListener
    from broker.server.broker_state import BrokerState


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


class Deferred:
    """An answer that will be given later in this process: by a commit, a timer, a peer or another request.

    ``complete`` is called once; it may be called before the function that made the object has returned it.
    """

    __slots__ = ("_answer", "_response")

    def __init__(self) -> None:
        self._answer: Callable[[Any], None] | None = None
        self._response: Any = None

    def complete(self, response: Any) -> None:
        """Answer with ``response``, which is what the API function would have returned."""
        if self._answer is None:
            self._response = response
        else:
            self._answer(response)

    def bind(self, answer: Callable[[Any], None]) -> None:
        """Say what sends the answer; it is called at once if there is one."""
        self._answer = answer
        if self._response is not None:
            answer(self._response)


@dataclass(slots=True)
class PendingAnswer:
    """A question put to the owner of a partition; ``done`` turns true when its answer has arrived."""

    done: bool = False
    error_code: int = 0
    value: int = -1
