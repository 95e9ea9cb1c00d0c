"""SIGINT and SIGTERM for commands that must not be interrupted in the middle of a write.

A signal raises at once, except within `held`, where the first is recorded and only a second raises.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_EXIT_CODE_OF_SIGNALS: Final = 128


class Signals:
    """Handles both signals for the rest of the process."""

    def __init__(self) -> None:
        self._number = 0
        self._is_held = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._come)

    @property
    def has_come(self) -> bool:
        """Whether a signal has arrived."""
        return self._number != 0

    @property
    def exit_code(self) -> int:
        """128 plus the number of the signal; 0 without one."""
        return self._number and _EXIT_CODE_OF_SIGNALS + self._number

    @contextmanager
    def held(self) -> Iterator[None]:
        """Defer the first signal to the end of the block."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False

    def _come(self, number: int, _frame: object) -> None:
        is_first, self._number = not self._number, number
        if not (is_first and self._is_held):
            raise SystemExit(self.exit_code)
