"""Prints docs/limits.md from the table of limits. Runs when the page is made or checked."""

from __future__ import annotations

import importlib

from broker.config.broker_config import BROKER_KEYS
from broker.config.limits.table import LIMITS

_PREAMBLE = """# Limits

Printed from `broker/config/limits/table.py`. Whatever a client can make many of has a limit, a metric that shows how
much of it there is or how often the limit was met, and an end. Where Kafka has a limit it is Kafka's setting. What is
refused is refused with Kafka's error code, and the log says so in a line now and then.

A limit with a name is a [setting](configuration.md); a number is a constant of the code. [Metrics](metrics.md) are
named as in `/metrics`.
"""


def value_of(bound: str) -> int | None:
    """Return the value of a constant, given as ``module:NAME``; None for a setting. LookupError if it is not there."""
    module, colon, name = bound.partition(":")
    if not colon:
        if bound not in BROKER_KEYS:
            raise LookupError(f"no setting {bound}")
        return None
    if not isinstance(found := getattr(importlib.import_module(module), name, None), int):
        raise LookupError(f"{bound} is not a number")
    return found


def describe_markdown() -> str:
    """Return the text of docs/limits.md."""
    parts = [_PREAMBLE]
    for area in LIMITS:
        parts += [f"## {area.title}\n", "| what | limit | metrics | beyond it | its end |", "|---|---|---|---|---|"]
        for limit in area.limits:
            bounds = "<br>".join(_bound_text(bound) for bound in limit.bounds)
            metrics = "<br>".join(f"`{name}`" for name in limit.metrics)
            parts.append(f"| {limit.what} | {bounds} | {metrics} | {limit.beyond} | {limit.end} |")
        parts.append("")
    return "\n".join(parts)


def _bound_text(bound: str) -> str:
    value = value_of(bound)
    return f"`{bound}`" if value is None else f"{value:,}"
