"""Prints docs/metrics.md from the two catalogues. Runs when the page is made or checked."""

from __future__ import annotations

from broker.metrics.derived_metrics import DERIVED
from broker.metrics.kafka_metrics import KAFKA_METRICS
from broker.metrics.prometheus import PREFIX, exposed_name
from shm.metrics.catalogue import CATALOGUE, MAX_LISTENERS
from shm.metrics.metric import HISTOGRAM, Metric

_PREAMBLE = """# Metrics

Printed from `shm/metrics/catalogue.py` and `broker/metrics/derived_metrics.py`, where every metric is declared once.
Each process writes a page of its own in shared memory; readers add up the pages of a role. Counters survive the restart
of their process, not of the broker. Histograms keep values within 2 %.

*In /metrics* says what Prometheus calls it: base units, `_total` behind counters. These names are an interface. A
histogram has the buckets, sum and count that Prometheus expects. What is not known is absent. `ops/grafana` has a
dashboard, `ops/alerts.yml` the alerts.
"""


def describe_markdown() -> str:
    """Return the text of docs/metrics.md."""
    parts = [_PREAMBLE]
    for role, metrics in CATALOGUE.items():
        if role == "controller":
            continue
        title = "handler and controller" if role == "handler" else role
        parts.append(f"## {title}\n")
        parts += ["| metric | kind | unit | label | in /metrics | meaning |", "|---|---|---|---|---|---|"]
        for m in metrics:
            name = exposed_name(role, m)
            parts.append(f"| {m.name} | {m.kind} | {m.unit} | {_label_text(m)} | `{name}` | {m.line} |")
        parts.append("")
        parts += [f"**{m.name}**: {m.line} {m.text}\n" for m in metrics]
    for title, metrics in DERIVED.items():
        parts.append(f"## {title}\n\nWorked out by readers, so no page has them.\n")
        parts += ["| in /metrics | kind | unit | labels | meaning |", "|---|---|---|---|---|"]
        parts += [f"| `{PREFIX}{m.name}` | {m.kind} | {m.unit} | {', '.join(m.keys)} | {m.line} |" for m in metrics]
        parts.append("")
        parts += [f"**{PREFIX}{m.name}**: {m.line} {m.text}\n" for m in metrics]
    parts += ["## Kafka's names\n", "| Kafka | here | |", "|---|---|---|"]
    parts += [f"| {m.names} | {_code(m.query)} | {m.text} |" for m in KAFKA_METRICS]
    return "\n".join(parts)


def _code(query: str) -> str:
    return f"`{query}`".replace("|", "\\|") if query else ""


def _label_text(metric: Metric) -> str:
    if metric.label == "listener":
        return f"listener: 0 to {MAX_LISTENERS - 1}"
    text = f"{metric.label}: {', '.join(metric.values)}" if metric.label else ", ".join(metric.keys)
    return "; ".join(filter(None, ("api_key", text))) if metric.kind == HISTOGRAM else text
