"""Prints docs/metrics.md, and single metrics for `rotunda metrics --describe`, from the two catalogues."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rotunda.broker.metrics.derived_metrics import DERIVED
from rotunda.broker.metrics.kafka_metrics import KAFKA_METRICS
from rotunda.broker.metrics.prometheus import PREFIX, exposed_name
from rotunda.shm.metrics.catalogue import CATALOGUE
from rotunda.shm.metrics.metric import HISTOGRAM, Metric

_PREAMBLE = """# Metrics

Print all metrics of the local broker, or explain one:

```
rotunda metrics
rotunda metrics --describe rotunda_acceptor_accept_errors_total
curl http://127.0.0.1:8080/metrics          # the same for Prometheus, at the status page's address
```

The tables omit the prefix `rotunda_`. Names and labels are stable: they are added, not renamed. Names that end in
`_total` are counters, marked ones are histograms with 2 % precision, all others gauges. Units are seconds and bytes.
Unknown values are absent. Counters start at 0 with the broker and survive the restart of their process. Metrics whose
names begin with `processor_` and `handler_` also have the label `processor` or `handler`.

`rotunda print-dashboard` is for Grafana, `rotunda print-alerts` for Prometheus.
`rotunda metrics --describe BytesInPerSec` prints the query for a metric of Kafka; for dashboards of kafka_exporter,
`--describe kafka_consumergroup_lag`.
"""
_TABLE = ["| metric | labels | meaning |", "|---|---|---|"]


def describe_markdown() -> str:
    """Return the text of docs/metrics.md: one line a metric."""
    parts = [_PREAMBLE]
    for role, metrics in CATALOGUE.items():
        if role == "controller":
            continue
        parts += [f"## {'handler and controller' if role == 'handler' else role}\n", *_TABLE]
        parts += [_row(exposed_name(role, metric), metric, role) for metric in metrics]
        parts.append("")
    for title, metrics in DERIVED.items():
        parts += [f"## {title}\n", *_TABLE]
        parts += [_row(PREFIX + metric.name, metric, "") for metric in metrics]
        parts.append("")
    parts += ["## Metrics of Kafka without a counterpart\n", "| Kafka | |", "|---|---|"]
    parts += [f"| {each.names} | {each.text} |" for each in KAFKA_METRICS if not each.query]
    return "\n".join(parts)


def describe_metric(name: str) -> str:
    """Return the notes on a metric, by its name in /metrics or in Kafka; empty for an unknown name."""
    for exposed, metric, role in _all_metrics():
        if exposed == name:
            labels = ", ".join(_labels(metric, role, with_values=True)) or "none"
            facts = f"{metric.kind}; labels: {labels}"
            return f"{exposed}\n  {facts}\n  {metric.line} {metric.text}\n"
    of_kafka = [each for each in KAFKA_METRICS if name in re.findall(r"[\w.-]+", each.names)]
    return "".join(
        f"{each.names}\n  {each.query or 'no counterpart'}\n  {each.text}".rstrip() + "\n" for each in of_kafka
    )


def _all_metrics() -> Iterator[tuple[str, Metric, str]]:
    for role, metrics in CATALOGUE.items():
        yield from ((exposed_name(role, metric), metric, role) for metric in metrics)
    for metrics in DERIVED.values():
        yield from ((PREFIX + metric.name, metric, "") for metric in metrics)


def _row(name: str, metric: Metric, role: str) -> str:
    kind = "Histogram. " if metric.kind == HISTOGRAM else ""
    labels = ", ".join(
        label for label in _labels(metric, role, with_values=False) if not name.startswith(f"{PREFIX}{label}_")
    )
    return f"| `{name.removeprefix(PREFIX)}` | {labels} | {kind}{metric.line} |"


def _labels(metric: Metric, role: str, *, with_values: bool) -> Iterator[str]:
    """Return the labels that the metric has in /metrics."""
    if metric.kind == HISTOGRAM:
        yield "api"
    elif role in {"processor", "handler", "controller"} and not metric.keys:
        yield "processor" if role == "processor" else "handler"
    if metric.label:
        label = "stage" if metric.kind == HISTOGRAM else metric.label
        listed = with_values and metric.label != "listener"
        yield f"{label} ({', '.join(metric.values)})" if listed else label
    for key in metric.keys:
        yield "client_software_name, client_software_version" if key == "software" and role else key
