"""Patterns in RE2's syntax from clients, matched against whole names in linear time.

Pure. Consumer groups subscribe with them, and transactions are listed by them. Python's own `re` backtracks, so that a
client's pattern could block a handler forever; RE2, which is Kafka's documented syntax, reads a name once. Linear is
not fast: a match needs up to 25 ns for each instruction of the pattern and each byte of the name. So the size of a
pattern is limited, and many names are matched in steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final, TypeVar

from rotunda.broker.steps import Steps

#: The longest pattern: parsing one needs up to 30 ms.
_LONGEST: Final = 1024

#: The largest compiled pattern, in RE2's instructions. An ASCII letter is one, a dot 8, a class of Unicode hundreds.
MOST_INSTRUCTIONS: Final = 2000

#: The greatest cost of one match, in instructions times bytes: 25 ms. All topic names are below it.
MOST_COST: Final = 1 << 20

#: The cost of the matches between two yields: 1.6 ms at worst, microseconds for most patterns.
COST_AT_ONCE: Final = 1 << 16

#: The memory of a compiled pattern and its states.
_MEMORY_BYTES: Final = 1 << 20

_Item = TypeVar("_Item")


class InvalidPatternError(ValueError):
    """A pattern that RE2 rejects, or one that is too large."""


class TopicRegex:
    """A compiled pattern."""

    def __init__(self, pattern: str) -> None:
        """Raise InvalidPatternError for a pattern that RE2 rejects, or that is too large."""
        if len(pattern) > _LONGEST:
            raise InvalidPatternError(f"expression too large: {len(pattern)} characters, the maximum is {_LONGEST}")
        import re2  # noqa: PLC0415 - only patterns need it

        options = re2.Options()
        options.log_errors = False
        options.never_capture = True
        options.max_mem = _MEMORY_BYTES
        try:
            compiled_pattern = re2.compile(pattern, options)
        except (re2.error, UnicodeError) as error:
            raise InvalidPatternError(_reason(error)) from error
        self.size: int = compiled_pattern.programsize
        if self.size > MOST_INSTRUCTIONS:
            raise InvalidPatternError(
                f"expression too large: {self.size} instructions, the maximum is {MOST_INSTRUCTIONS}"
            )
        self._fullmatch = compiled_pattern.fullmatch

    def matches(self, name: str) -> bool:
        """Return whether the pattern matches the whole name."""
        return self._fullmatch(name) is not None

    def matching(self, items: Iterable[_Item], text_of: Callable[[_Item], str]) -> Steps[list[_Item]]:
        """Return the items whose text the pattern matches.

        Raises InvalidPatternError for a text that would need too long to match.
        """
        found: list[_Item] = []
        spent = 0
        for item in items:
            text = text_of(item)
            cost = self.size * (len(text) if text.isascii() else len(text.encode()))
            if cost > MOST_COST:
                raise InvalidPatternError(f"expression too large for {len(text)} characters: {self.size} instructions")
            spent += cost
            if spent > COST_AT_ONCE:
                yield
                spent = cost
            if self._fullmatch(text) is not None:
                found.append(item)
        return found


@lru_cache(256)
def compiled(pattern: str) -> TopicRegex:
    """Return a compiled pattern. Raises InvalidPatternError."""
    return TopicRegex(pattern)


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(error)
