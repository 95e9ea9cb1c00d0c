"""Metrics of a running broker in Prometheus's model, with the part of it that PromQL queries need."""

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from rotunda.broker.cli.metrics_reader import attached
from rotunda.broker.clock import SystemClock
from rotunda.broker.metrics.broker_reading import LOOKS_NS
from rotunda.broker.metrics.prometheus import render
from rotunda.broker.runtime import run_dir
from tests.support.broker_process import BrokerProcess

#: Labels that the scraping Prometheus adds to every series.
SCRAPE_LABELS = frozenset({"instance", "job"})

_SELECTOR = re.compile(r"(rotunda_[a-z0-9_]+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r"([a-z_]+)(=~|!~|!=|=)\"([^\"]*)\"")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")


class Sample(NamedTuple):
    """One sample of one metric."""

    labels: dict[str, str]
    value: float


class Exposition:
    """One exposition, by name of the sample."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.samples: dict[str, list[Sample]] = defaultdict(list)
        self.kinds: dict[str, str] = {}
        for family in text_string_to_metric_families(text):
            self.kinds[family.name] = family.type
            for sample in family.samples:
                self.samples[sample.name].append(Sample(sample.labels, sample.value))

    def values(self, name: str, **labels: str) -> list[float]:
        """Return the values of the samples of that name with these labels, among others."""
        return [value for found, value in self.samples["rotunda_" + name] if labels.items() <= found.items()]

    def value(self, name: str, **labels: str) -> float | None:
        """Return the one value that there is, None if there is none."""
        found = self.values(name, **labels)
        assert len(found) <= 1, (name, labels, found)
        return found[0] if found else None

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of the values."""
        return sum(self.values(name, **labels))


class Scraper:
    """Scrapes a broker's metrics repeatedly."""

    def __init__(self, broker: BrokerProcess) -> None:
        record = run_dir.read(broker.run_dir)
        assert record is not None
        self._reader = attached(record)

    def scrape(self, *, per_partition: bool = False) -> Exposition:
        """Return the current metrics."""
        self._reader.wants.web_looks(SystemClock.monotonic_ns() + LOOKS_NS)
        return Exposition(render(self._reader.read(), per_partition=per_partition))


def metrics(broker: BrokerProcess, name: str) -> float:
    """Return the present sum of a metric's samples; the page's response may be a second old."""
    return Scraper(broker).scrape().total(name.removeprefix("rotunda_"))


def selectors(query: str) -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """Yield (metric, its matchers as (label, operator, value)) of a PromQL query."""
    for found in _SELECTOR.finditer(query):
        yield found[1], _MATCHER.findall(found[2] or "")


def grouping_labels(query: str) -> set[str]:
    """Return every label that a query groups or joins by."""
    return {label.strip() for found in _GROUPING.finditer(query) for label in found[1].split(",") if label.strip()}
