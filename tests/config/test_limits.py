"""docs/limits.md: each setting and metric exists, and each number is that of a constant."""

import re
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

from rotunda.broker.config.broker_config import BROKER_KEYS
from rotunda.broker.metrics.derived_metrics import DERIVED
from rotunda.broker.metrics.prometheus import PREFIX, exposed_name
from rotunda.shm.metrics.catalogue import CATALOGUE

PAGE = Path(__file__).parents[2] / "docs" / "limits.md"
METRICS = {exposed_name(role, metric) for role, metrics in CATALOGUE.items() for metric in metrics} | {
    PREFIX + metric.name for metrics in DERIVED.values() for metric in metrics
}

#: The constants of the page's numbers, in its order.
CONSTANTS = (
    "broker.network.acceptor.parked_sockets:MOST_PARKED",
    "broker.network.acceptor.admission:MOST_ADDRESSES",
    "shm.tables.client_hosts:ROWS",
    "broker.network.processor.kept_requests:OWN_BYTES",
    "broker.protocol.primitives:MOST_ELEMENTS",
    "broker.protocol.messages.produce:MOST_PARTS",
    "broker.protocol.messages.fetch:MOST_BYTES",
    "broker.telemetry.receiver:MOST_EXPANSION",
    "broker.telemetry.series:MOST_SERIES",
    "broker.telemetry.receiver:MOST_SERIES_OF_ALL",
    "broker.telemetry.instances:MOST_INSTANCES",
    "broker.records.compression:MOST_PIECES",
    "broker.partitions.produce.produces:LONGEST_NS",
    "broker.partitions.produce.produces:MOST_UNDER_WAY",
    "broker.partitions.produce.sliced_validation:MOST_VALIDATED",
    "broker.partitions.produce.record_errors:MOST_RECORDS",
    "broker.partitions.produce.record_errors:MOST_BYTES",
    "broker.log.timestamp_search:MOST_RECORDS",
    "broker.log.timestamp_search:MOST_BYTES",
    "broker.network.processor.throttling.delayed_responses:MOST",
    "broker.network.processor.throttling.retry_storms:MOST_BYTES",
    "broker.network.processor.throttling.retry_storms:MOST_REMEMBERED",
    "broker.scheduling.slices:MOST_WAITING",
    "broker.scheduling.slices:MOST_WAITING_BYTES",
    "broker.scheduling.purgatory:MOST_OPERATIONS",
    "broker.scheduling.purgatory:MOST_WATCHED_ROWS",
    "broker.partitions.fetch.fetch_sessions:MOST_PARTITIONS",
    "broker.network.accounting.client_registry:MOST_CLIENT_ID_BYTES",
    "broker.network.accounting.client_registry:MOST_CHARACTERS",
    "broker.network.accounting.client_registry:MOST_DEPARTED",
    "broker.apis.groups.join_group:MOST_PROTOCOLS",
    "broker.coordinator.share_state.share_consumers:MOST_PARTITIONS",
    "broker.coordinator.classic.protocol:MOST_PENDING_MEMBERS",
    "broker.metadata.topics.topic_regex:MOST_INSTRUCTIONS",
    "broker.metadata.topics.topic_regex:MOST_COST",
    "broker.log.producers.producer_state:MOST_PRODUCERS",
    "broker.partitions.produce.verification:MOST_GUARDS",
    "broker.partitions.request_cache:MOST_CACHE_BYTES",
    "broker.partitions.request_cache:MOST_REQUEST_BYTES",
    "broker.handler.api_calls:MOST_RESPONSE_BYTES",
    "broker.metadata.store.entity_store:MOST_BYTES",
    "shm.tables.quota_tables:SLOTS",
    "broker.quotas.quota_manager:MOST_KNOWN",
    "broker.quotas.quota_manager:MOST_ID_BYTES",
    "broker.metrics.quota_use:MOST_LISTED",
    "broker.metadata.configs.config_changes:MOST_CHARACTERS",
    "broker.apis.cluster.controller_access:MOST_CHANGES",
    "broker.metadata.store.request_dedup:MOST_REQUESTS",
    "broker.request_log.names:MOST_NAMES_BYTES",
    "broker.request_log.names:MOST_ENDED_SUBJECTS",
    "broker.request_log.recent:MOST_CONNECTIONS",
    "broker.request_log.recent:MOST_CALLS",
    "shm.metrics.metric_tables:TEXT_SLOTS",
    "broker.coordinator.group_status_publisher:MOST_MEMBERS",
    "broker.coordinator.group_status_publisher:MOST_OFFSETS",
    "web.http.room:MOST_UNREAD_BYTES",
)


class Limit(NamedTuple):
    """One row of the page."""

    resource: str
    bounds: tuple[str, ...]
    metrics: tuple[str, ...]
    beyond: str
    released: str


def rows() -> list[Limit]:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [
        Limit(resource, tuple(bounds.split("; ")), tuple(re.findall(r"`(\w+)`", metrics)), beyond, released)
        for resource, bounds, metrics, beyond, released in cells
        if resource != "resource"
    ]


@pytest.mark.parametrize("limit", rows(), ids=lambda limit: limit.resource)
def test_settings_and_metrics_exist(limit: Limit) -> None:
    settings = {bound.strip("`") for bound in limit.bounds if bound.startswith("`")}
    assert settings <= BROKER_KEYS.keys()
    assert limit.metrics
    assert {PREFIX + name for name in limit.metrics} <= METRICS
    assert limit.beyond
    assert limit.released


def test_numbers_are_those_of_the_code() -> None:
    numbers = [int(bound.replace(",", "")) for limit in rows() for bound in limit.bounds if bound[0] != "`"]
    modules = [each.split(":") for each in CONSTANTS]
    assert numbers == [getattr(import_module(f"rotunda.{module}"), name) for module, name in modules]


def test_each_resource_is_listed_once() -> None:
    resources = [limit.resource for limit in rows()]
    assert len(resources) == len(set(resources))
