"""Slow turns, from the lines of the broker's log: turns of 250 ms or more of a process that serves requests.

One that used more than 50 ms of processor time is the broker's own doing; in the others it waited for a processor or a
disk. Of lines of the same kind the log has only the first and a count, so the worst turn here is the worst of the
written lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

BUSY_MS = 50
_LINE = re.compile(r"a turn took (?P<took>\d+) ms, at most (?P<own>\d+) ms of CPU; other requests waited(?P<what>.*)")


@dataclass
class Turns:
    """The slow turns of the log. `busy` are the lines of turns that used the processor themselves."""

    lines: int = 0
    worst_ms: int = 0
    worst_own_ms: int = 0
    busy: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, log: Iterable[str]) -> Turns:
        turns = cls()
        for found in filter(None, map(_LINE.search, log)):
            took_ms, own_ms = int(found["took"]), int(found["own"])
            turns.lines += 1
            turns.worst_ms = max(turns.worst_ms, took_ms)
            turns.worst_own_ms = max(turns.worst_own_ms, own_ms)
            if own_ms > BUSY_MS:
                turns.busy.append(found.group())
        return turns

    def __str__(self) -> str:
        """Return it in a sentence, and a line for each that was busy."""
        if not self.lines:
            return "No turn of a processor, handler or controller took 250 ms or more."
        words = (
            f"The log has {self.lines} lines on turns of 250 ms or more, the longest {self.worst_ms} ms; the most "
            f"that one used of a processor is {self.worst_own_ms} ms."
        )
        return "\n".join([words, *(f"- {line}" for line in self.busy)])
