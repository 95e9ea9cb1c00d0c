"""Findings of a check: how it went, what it was about, and one line that says what is so or what to change."""

from __future__ import annotations

from typing import NamedTuple

OK, WARN, FAIL, UNKNOWN = "ok", "warn", "fail", "unknown"


class Finding(NamedTuple):
    """One line. `level` is one of those above; only `fail` keeps a client from its work."""

    level: str
    what: str
    text: str
