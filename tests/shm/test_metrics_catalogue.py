"""The catalogue: every metric is declared once, in full, and stands on the page."""

import pytest

from shm.metrics_catalogue import CATALOGUE, COUNTER, GAUGE, HISTOGRAM, Metric, describe_markdown
from shm.process_slots import ROLES

METRICS = pytest.mark.parametrize(
    "metric", [metric for metrics in CATALOGUE.values() for metric in metrics], ids=lambda metric: metric.name
)


def test_roles_are_processes() -> None:
    assert set(CATALOGUE) == set(ROLES) - {"supervisor"}


@pytest.mark.parametrize("role", CATALOGUE)
def test_names_are_not_given_twice(role: str) -> None:
    names = [metric.name for metric in CATALOGUE[role]]
    assert len(names) == len(set(names))


@METRICS
def test_every_metric_is_declared_in_full(metric: Metric) -> None:
    assert metric.kind in {COUNTER, GAUGE, HISTOGRAM}
    assert metric.unit
    assert metric.line.endswith(".")
    assert metric.text.endswith(".")
    assert len(set(metric.values)) == len(metric.values)
    assert bool(metric.label) == (metric.values != ("",))
    if metric.unit in {"ns", "bytes"}:
        assert metric.unit in metric.name.split("_")


@METRICS
def test_every_metric_is_on_the_page(metric: Metric) -> None:
    assert f"| {metric.name} | {metric.kind} | {metric.unit} |" in describe_markdown()
