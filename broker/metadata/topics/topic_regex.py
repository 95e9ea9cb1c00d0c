"""Patterns that clients send, in RE2's syntax, matched against whole names in linear time.

Pure. Consumer groups subscribe with them, and transactions are listed by them. Python's own `re` goes back and forth
over its input, and a pattern sent by a client could keep a handler busy for ever; RE2, whose syntax Kafka's clients
are promised, leads a name through its pattern once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import re2

_LONGEST: Final = 4096

#: What a compiled pattern and its states may take.
_MEMORY_BYTES: Final = 1 << 20


class InvalidPatternError(ValueError):
    """A pattern that RE2 does not take, or one that is too large."""


class TopicRegex:
    """A pattern, ready to be asked."""

    def __init__(self, pattern: str) -> None:
        """Raise InvalidPatternError when RE2 would not take the pattern, or it is too large."""
        if len(pattern) > _LONGEST:
            raise InvalidPatternError(f"expression too large: {len(pattern)} characters")
        options = re2.Options()
        options.log_errors = False
        options.never_capture = True
        options.max_mem = _MEMORY_BYTES
        try:
            self._fullmatch = re2.compile(pattern, options).fullmatch
        except (re2.error, UnicodeError) as error:
            raise InvalidPatternError(_reason(error)) from error

    def matches(self, name: str) -> bool:
        """Return whether the pattern matches the whole name."""
        return self._fullmatch(name) is not None


@lru_cache(256)
def compiled(pattern: str) -> TopicRegex:
    """Return a pattern, ready to be asked. Raises InvalidPatternError."""
    return TopicRegex(pattern)


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(error)
