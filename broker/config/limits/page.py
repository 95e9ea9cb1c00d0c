"""Prints docs/limits.md from the table of limits. Runs when the page is made or checked."""

from __future__ import annotations

import importlib

from rotunda.broker.config.broker_config import BROKER_KEYS
from rotunda.broker.config.limits.table import LIMITS

_PREAMBLE = """# Limits

Everything that clients can create many of has a limit. Each row: the limit, its metrics, the effect beyond it, and
when the resource is released.

- A name is a [setting](configuration.md), Kafka's where Kafka has the limit. A number is a constant.
- Beyond a limit clients get Kafka's error code. The broker's log has a rate-limited line.
- Names of [metrics](metrics.md) are without their prefix `rotunda_`.

Printed from `broker/config/limits/table.py`.
"""


def value_of(bound: str) -> int | None:
    """Return the value of a constant ``module:NAME``; None for a setting. LookupError if it does not exist."""
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
        parts += [
            f"## {area.title}\n",
            "| resource | limit | metrics | beyond it | released |",
            "|---|---|---|---|---|",
        ]
        for limit in area.limits:
            bounds = "; ".join(_bound_text(bound) for bound in limit.bounds)
            metrics = ", ".join(f"`{name.removeprefix('rotunda_')}`" for name in limit.metrics)
            parts.append(f"| {limit.name} | {bounds} | {metrics} | {limit.beyond} | {limit.end} |")
        parts.append("")
    return "\n".join(parts)


def _bound_text(bound: str) -> str:
    value = value_of(bound)
    return f"`{bound}`" if value is None else f"{value:,}"
