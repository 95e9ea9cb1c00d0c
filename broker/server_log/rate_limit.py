"""The limit of the log: the maximum bytes that each line of code may log, whatever causes it and however often.

Every process has one, in front of its log lines. A place in the code (a file and a line of it) may write a burst, and
then only a low rate of bytes a second, which shows that it continues; held back lines are counted, and the count is
written with the place's next line or, when there is none, by itself. So a client that finds a line it can cause at will
fills no disk and hides no other line. The limit counts bytes because tracebacks and client-chosen names are long.

Lines that no client can cause may be logged without limit: at level CRITICAL, or with ``extra=UNLIMITED``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from rotunda.broker.text_table import counted

#: Burst of one place: a hundred ordinary lines, or five tracebacks.
BURST_BYTES = 16 * 1024
#: Long-term rate of one place: a line a second, or a traceback in half a minute.
BYTES_PER_SECOND = 100
#: Delay after which the number of held back lines is written, if no other line has reported it.
REPORT_AFTER_NS = 10_000_000_000

#: ``extra`` of a logging call: the line is always written.
UNLIMITED: Mapping[str, object] = MappingProxyType({"unlimited": True})

_NS_PER_BYTE = 1_000_000_000 // BYTES_PER_SECOND


class _Place:
    """One place in the code. Its allowance is a time: spent up to then, and possibly overdrawn by one line."""

    __slots__ = ("example", "held_back", "held_back_ns", "level", "logger", "spent_until_ns")

    def __init__(self) -> None:
        self.spent_until_ns = 0
        self.held_back = 0
        self.held_back_ns = 0
        self.logger = ""
        self.level = logging.INFO
        self.example = ""


class LineLimit:
    """The limit of one process. `allows` before a line is made, `spend` after it was written."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._places: dict[tuple[str, int], _Place] = {}
        self._holding: set[tuple[str, int]] = set()

    def allows(self, record: logging.LogRecord) -> bool:
        """Return whether to write the line; it then reports how many like it were held back."""
        if record.levelno >= logging.CRITICAL or getattr(record, "unlimited", False):
            return True
        key = record.pathname, record.lineno
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = _Place()
        now_ns = self._now_ns()
        if place.spent_until_ns - now_ns >= BURST_BYTES * _NS_PER_BYTE:
            if not place.held_back:
                place.held_back_ns = now_ns
                place.logger, place.level, place.example = record.name, record.levelno, str(record.msg)
                self._holding.add(key)
            place.held_back += 1
            return False
        if place.held_back:
            record.msg = f"{record.getMessage()} ({place.held_back} more like it since the last such line)"
            record.args = ()
            place.held_back = 0
            self._holding.discard(key)
        return True

    def spend(self, record: logging.LogRecord, size: int) -> None:
        """Count the bytes of the line."""
        place = self._places.get((record.pathname, record.lineno))
        if place is not None:
            place.spent_until_ns = max(place.spent_until_ns, self._now_ns()) + size * _NS_PER_BYTE

    def overdue(self, *, at_last: bool = False) -> Iterator[logging.LogRecord]:
        """Yield a line for each place with suppressed lines not reported for a while, or ``at_last`` for all."""
        if not self._holding:
            return
        now_ns = self._now_ns()
        for key in sorted(self._holding):
            place = self._places[key]
            if at_last or now_ns - place.held_back_ns >= REPORT_AFTER_NS:
                text = "suppressed %s that began with: %s"
                values = counted(place.held_back, "more line"), place.example
                place.held_back = 0
                self._holding.discard(key)
                yield logging.LogRecord(place.logger, place.level, __file__, 0, text, values, None)
