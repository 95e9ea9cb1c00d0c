"""A row of the table of limits. Read with the table, and by no process that runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One row. ``bounds`` are settings by name, or constants as ``module:NAME``; ``metrics`` are names in /metrics."""

    name: str
    bounds: tuple[str, ...]
    metrics: tuple[str, ...]
    beyond: str
    end: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """Limits that belong together."""

    title: str
    limits: tuple[Limit, ...]
