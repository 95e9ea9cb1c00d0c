"""Answers that become due many at a time: what has no room in the turn is answered in slices.

Runs in handler processes and the controller: one commit or timer completes the joins of a group of thousands. An
answer that waits here is in memory alone, and its request is not released: whoever dies meanwhile leaves it to the
replacement. Knows nothing of what is answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from broker.scheduling.slices import Slices, Work

_EVER_NS: Final = 1 << 62


class LateAnswers:
    """Those of one target."""

    def __init__(self, slices: Slices, now_ns: Callable[[], int]) -> None:
        self._slices = slices
        self._now_ns = now_ns
        self._waiting: deque[Callable[[], None]] = deque()
        #: Until then answers are given at once.
        self.until_ns = _EVER_NS

    def give(self, answer: Callable[[], None]) -> None:
        """Answer, now or behind those that wait; ``answer`` raises nothing."""
        if not self._waiting and self._now_ns() < self.until_ns:
            answer()
            return
        if not self._waiting:
            self._slices.begin_own(self._answer())
        self._waiting.append(answer)

    def finish(self) -> None:
        """Give all that wait, and what comes from now on at once: there is no other turn."""
        self.until_ns = _EVER_NS
        while self._waiting:
            self._waiting.popleft()()

    def _answer(self) -> Work:
        while self._waiting:
            self._waiting.popleft()()
            yield None
