"""The table of limits, walked: each limit is in force somewhere, and each metric is one that /metrics has."""

import pytest

from rotunda.broker.config.limits.page import describe_markdown, value_of
from rotunda.broker.config.limits.rows import Limit
from rotunda.broker.config.limits.table import LIMITS
from rotunda.broker.metrics.derived_metrics import DERIVED
from rotunda.broker.metrics.prometheus import PREFIX, exposed_name
from rotunda.shm.metrics.catalogue import CATALOGUE

ROWS = [limit for area in LIMITS for limit in area.limits]
METRICS = {exposed_name(role, metric) for role, metrics in CATALOGUE.items() for metric in metrics} | {
    PREFIX + metric.name for metrics in DERIVED.values() for metric in metrics
}


def name_of(limit: Limit) -> str:
    return limit.name


@pytest.mark.parametrize("limit", ROWS, ids=name_of)
def test_each_row_is_so(limit: Limit):
    assert limit.bounds
    for bound in limit.bounds:
        value = value_of(bound)
        assert value is None or value > 0
    assert limit.metrics
    assert set(limit.metrics) <= METRICS
    assert limit.beyond
    assert limit.end


def test_a_row_that_names_nothing_is_found_out():
    for bound in (
        "no.such.setting",
        "rotunda.broker.config.limits.table:NO_SUCH_CONSTANT",
        "rotunda.broker.config.limits.table:LIMITS",
    ):
        with pytest.raises(LookupError):
            value_of(bound)


def test_nothing_is_listed_twice():
    names = [(area.title, limit.name) for area in LIMITS for limit in area.limits]
    assert len(names) == len(set(names))


def test_the_page_has_every_row():
    page = describe_markdown()
    assert all(limit.name in page for limit in ROWS)
