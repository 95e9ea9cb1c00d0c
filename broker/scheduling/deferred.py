"""An answer that is given later in the process that owes it (``E03``).

Runs in handler processes; knows nothing of requests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


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
