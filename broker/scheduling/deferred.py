"""An answer that is given later in the process that owes it (``E03``).

Runs in handler processes and the controller; knows nothing of requests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Deferred:
    """An answer that will be given later in this process: by a commit, a timer, a peer, another request, or a deadline.

    ``complete`` is called once; it may be called before the function that made the object has returned it. An answer
    that waits for the metadata, or not for ever, has a ``timeout_ms`` and a ``retry``: ``retry(final)`` is called after
    every change that may have ended the wait and returns the response, or None to go on waiting; once ``timeout_ms``
    has passed it is called with ``final=True`` and must return a response.
    """

    __slots__ = ("_answer", "_response", "is_complete", "retry", "timeout_ms")

    def __init__(self, timeout_ms: int = -1, retry: Callable[[bool], Any] | None = None) -> None:
        self.timeout_ms = timeout_ms
        self.retry = retry
        self.is_complete = False
        self._answer: Callable[[Any], None] | None = None
        self._response: Any = None

    def complete(self, response: Any) -> None:
        """Answer with ``response``, which is what the API function would have returned."""
        self.is_complete = True
        if self._answer is None:
            self._response = response
        else:
            self._answer(response)

    def try_complete(self, final: bool) -> bool:
        """Answer if the wait is over; False if it is not."""
        if not self.is_complete and self.retry is not None:
            response = self.retry(final)
            if response is not None:
                self.complete(response)
        return self.is_complete

    def bind(self, answer: Callable[[Any], None]) -> None:
        """Say what sends the answer; it is called at once if there is one."""
        self._answer = answer
        if self.is_complete:
            answer(self._response)
