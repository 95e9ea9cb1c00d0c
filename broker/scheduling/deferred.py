"""A response that is completed later, in the process that has to send it (``E03``).

Runs in handler processes and the controller; knows nothing of requests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Deferred:
    """A response completed later in this process: by a commit, a timer, a peer, another request, or a deadline.

    ``complete`` is called once; it may be called before the function that created the object has returned it. A
    response that waits for the metadata, or for a limited time, has a ``timeout_ms`` and a ``retry``: ``retry(final)``
    is called after every change that may have ended the wait, and returns the response, or None to continue waiting.
    After ``timeout_ms`` it is called with ``final=True`` and must return a response.
    """

    __slots__ = ("_respond", "_response", "is_complete", "retry", "timeout_ms")

    def __init__(self, timeout_ms: int = -1, retry: Callable[[bool], Any] | None = None) -> None:
        self.timeout_ms = timeout_ms
        self.retry = retry
        self.is_complete = False
        self._respond: Callable[[Any], None] | None = None
        self._response: Any = None

    def complete(self, response: Any) -> None:
        """Complete with ``response``, in the form that the API function would have returned."""
        self.is_complete = True
        if self._respond is None:
            self._response = response
        else:
            self._respond(response)

    def try_complete(self, final: bool) -> bool:
        """Complete the response if the wait is over; False if it is not."""
        if not self.is_complete and self.retry is not None:
            response = self.retry(final)
            if response is not None:
                self.complete(response)
        return self.is_complete

    def bind(self, respond: Callable[[Any], None]) -> None:
        """Set the callback that sends the response; it is called immediately if there is a response."""
        self._respond = respond
        if self.is_complete:
            respond(self._response)
