"""The catalogue: every metric is declared once, in full, and is part of the page."""

import re

import pytest

from rotunda.broker.metrics.derived_metrics import DERIVED
from rotunda.broker.metrics.kafka_metrics import KAFKA_METRICS, KafkaMetric
from rotunda.broker.metrics.prometheus import PREFIX, exposed_name
from rotunda.broker.metrics.reference_page import describe_markdown, describe_metric
from rotunda.shm.metrics.catalogue import CATALOGUE
from rotunda.shm.metrics.metric import COUNTER, GAUGE, HISTOGRAM, Metric
from rotunda.shm.tables.process_slots import ROLES

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


def _first_name(metric: KafkaMetric) -> str:
    return re.findall(r"[\w.-]+", metric.names)[0]


@pytest.mark.parametrize("metric", KAFKA_METRICS, ids=lambda metric: metric.names)
def test_where_kafkas_metrics_are_found(metric: KafkaMetric) -> None:
    """Section F: each has a query over existing metrics, or a reason for its absence."""
    known = {exposed_name(role, each) for role, metrics in CATALOGUE.items() for each in metrics}
    known |= {f"rotunda_{each.name}" for metrics in DERIVED.values() for each in metrics}
    named = {name.removesuffix("_bucket") for name in re.findall(r"rotunda_\w+", metric.query)}
    assert named <= known
    assert named or metric.text
    assert metric.names in (describe_markdown() if not metric.query else describe_metric(_first_name(metric)))


@METRICS
def test_every_metric_is_on_the_page(metric: Metric) -> None:
    roles = [role for role, metrics in CATALOGUE.items() if metric in metrics]
    assert any(f"| `{exposed_name(role, metric).removeprefix(PREFIX)}` | " in describe_markdown() for role in roles)


@METRICS
def test_a_metric_with_keys_has_room_for_them(metric: Metric) -> None:
    assert bool(metric.keys) == bool(metric.slots)
    assert len(metric.keys) <= 3
    assert not (metric.keys and metric.label)


@pytest.mark.parametrize("metric", [each for part in DERIVED.values() for each in part], ids=lambda each: each.name)
def test_what_readers_work_out_is_on_the_page_too(metric: Metric) -> None:
    assert metric.line.endswith(".")
    assert metric.text.endswith(".")
    assert f"| `{metric.name}` | " in describe_markdown()


def test_the_page_has_one_line_a_metric() -> None:
    lines = re.findall(r"^\| `(\w+)` \|", describe_markdown(), re.MULTILINE)
    assert len(lines) == len(set(lines))
    assert all(describe_metric(PREFIX + name).startswith(f"{PREFIX}{name}\n") for name in lines)


def test_names_in_metrics_follow_prometheus_habits() -> None:
    """users.md section 3: one prefix, base units, counters end in _total; names are unique."""
    exposed = {(exposed_name(role, m), m.kind) for role, metrics in CATALOGUE.items() for m in metrics}
    exposed |= {(f"rotunda_{metric.name}", metric.kind) for metrics in DERIVED.values() for metric in metrics}
    assert len({name for name, _ in exposed}) == len(exposed)
    for name, kind in exposed:
        assert name.startswith("rotunda_")
        assert name.endswith("_total") == (kind == COUNTER), name
        assert not {"ns", "ms", "us", "percent", "kb", "mb"} & set(name.split("_")), name
