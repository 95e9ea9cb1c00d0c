"""Subscriptions to client metrics (KIP-714): set, described with defaults, listed, stored, removed, or rejected."""

from __future__ import annotations

from typing import Any

import pytest

from rotunda.broker.metadata.configs.config_changes import CLIENT_METRICS
from rotunda.broker.metadata.configs.config_descriptions import CLIENT_METRICS_CONFIG, DEFAULT_CONFIG
from rotunda.broker.protocol.api_keys import ApiKey
from tests.support.admin_cluster import AdminCluster
from tests.support.admin_configs import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    Change,
    alter_configs,
    describe_configs,
    described_configs,
)

INTERVAL, MATCH, METRICS = "interval.ms", "match", "metrics"
INVALID_REQUEST, INVALID_CONFIG = 42, 40
DEFAULTS = {INTERVAL: ("300000", DEFAULT_CONFIG), MATCH: ("", DEFAULT_CONFIG), METRICS: ("", DEFAULT_CONFIG)}


def alter(
    cluster: AdminCluster, *changes: Change, name: str = "s", validate_only: bool = False
) -> tuple[int, str | None]:
    return alter_configs(cluster, (CLIENT_METRICS, name), changes, validate_only=validate_only)


def describe(cluster: AdminCluster, name: str = "s", keys: list[str] | None = None) -> Any:
    return describe_configs(cluster, (CLIENT_METRICS, name), keys, include_synonyms=True, include_documentation=True)


def values_of(cluster: AdminCluster, name: str = "s") -> dict[str, tuple[str | None, int]]:
    return described_configs(cluster, (CLIENT_METRICS, name))


def listed(cluster: AdminCluster, version: int = 1) -> list[str]:
    key = ApiKey.LIST_CONFIG_RESOURCES
    fields = {"resource_types": [CLIENT_METRICS]} if version else {}
    return [each.resource_name for each in cluster.call(key, version, fields).config_resources]


def test_a_subscription_is_kept_described_and_listed(cluster: AdminCluster) -> None:
    """users.md row 8; spec I, row 74: version 0 lists only these."""
    assert values_of(cluster) == DEFAULTS
    assert alter(cluster, (INTERVAL, SET, " 60000 "), (METRICS, SET, "a., b.")) == (0, None)
    assert alter(cluster, (MATCH, SET, "client_id=x.*"), name="r") == (0, None)
    cluster.restart_controller()
    expected = {
        INTERVAL: ("60000", CLIENT_METRICS_CONFIG),
        MATCH: ("", DEFAULT_CONFIG),
        METRICS: ("a.,b.", CLIENT_METRICS_CONFIG),
    }
    cluster.metadata.refresh()
    assert values_of(cluster) == expected
    assert [listed(cluster, version) for version in range(2)] == [["r", "s"]] * 2
    cluster.settle()
    assert [sorted(cache.client_metrics_configs) for cache in cluster.handlers] == [["r", "s"]] * 3


def test_synonyms_are_the_stored_settings(cluster: AdminCluster) -> None:
    alter(cluster, (INTERVAL, SET, "60000"))
    interval, match, _ = describe(cluster).configs
    synonyms = [(each.name, each.value, each.source) for each in interval.synonyms]
    assert synonyms == [(INTERVAL, "60000", CLIENT_METRICS_CONFIG)]
    assert (interval.config_type, interval.read_only, bool(interval.documentation)) == (3, False, True)
    assert (match.config_type, match.synonyms) == (7, ())
    assert [config.name for config in describe(cluster, keys=[MATCH, "no.such"]).configs] == [MATCH]


def test_a_subscription_without_settings_is_deleted(cluster: AdminCluster) -> None:
    """T02."""
    alter(cluster, (INTERVAL, SET, "60000"), (METRICS, SET, "*"))
    assert alter(cluster, (INTERVAL, DELETE, None)) == (0, None)
    assert listed(cluster) == ["s"]
    deletions = [(key, DELETE, None) for key in (INTERVAL, MATCH, METRICS)]
    assert alter(cluster, *deletions) == (0, None)
    assert (listed(cluster), values_of(cluster)) == ([], DEFAULTS)
    assert cluster.controller.version == 3
    assert alter(cluster, *deletions, ("foo", DELETE, None)) == (0, None)
    assert cluster.controller.version == 3


def test_alter_configs_replaces_a_subscription(cluster: AdminCluster) -> None:
    alter(cluster, (INTERVAL, SET, "60000"))
    resource = {"resource_type": CLIENT_METRICS, "resource_name": "s", "configs": [{"name": METRICS, "value": ""}]}
    [outcome] = cluster.call(ApiKey.ALTER_CONFIGS, 2, {"resources": [resource]}).responses
    assert outcome.error_code == 0
    assert values_of(cluster) == {**DEFAULTS, METRICS: ("", CLIENT_METRICS_CONFIG)}


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (("interval", SET, "60000"), INVALID_REQUEST, "Unknown client metrics configuration: interval (did you mean"),
        ((INTERVAL, SET, "99"), INVALID_REQUEST, "Invalid value 99 for interval.ms, interval must be between 100 and"),
        ((INTERVAL, SET, "3600001"), INVALID_REQUEST, "between 100 and 3600000 (1 hour)"),
        ((INTERVAL, SET, "soon"), INVALID_CONFIG, "Invalid value soon for configuration interval.ms: Not a number"),
        ((INTERVAL, SET, ""), INVALID_CONFIG, "Not a number of type INT"),
        ((INTERVAL, SET, None), INVALID_REQUEST, "Null value not supported for : interval.ms"),
        ((METRICS, SET, "a,,b"), INVALID_CONFIG, "Invalid value a,,b for configuration metrics: Elements must"),
        ((METRICS, APPEND, "c."), INVALID_CONFIG, "Can't APPEND to key metrics because its type is not LIST."),
        ((MATCH, SUBTRACT, "c."), INVALID_CONFIG, "Can't SUBTRACT to key match because its type is not LIST."),
        ((MATCH, SET, "10"), INVALID_CONFIG, "Illegal client matching pattern: 10; it is selector=pattern"),
        ((MATCH, SET, "client_id="), INVALID_CONFIG, "Illegal client matching pattern: client_id="),
        ((MATCH, SET, "client_id=a=b"), INVALID_CONFIG, "Illegal client matching pattern"),
        ((MATCH, SET, "client_id=["), INVALID_CONFIG, "Illegal client matching pattern"),
        ((MATCH, SET, "client_name=a"), INVALID_CONFIG, "client_software_name"),
        ((MATCH, SET, "=a"), INVALID_CONFIG, "Illegal client matching pattern: =a"),
    ],
)
def test_invalid_changes_are_rejected_as_in_kafka(cluster: AdminCluster, change: Any, error: int, says: str) -> None:
    code, message = alter(cluster, change)
    assert code == error
    assert says in str(message)
    assert cluster.controller.version == 0


@pytest.mark.parametrize(
    "pairs",
    [
        "client_id = a.*, client_software_name=Java",
        r"client_source_address=10\.\p{Nd}+\..*",  # RE2's and Java's syntax
        "client_source_port=(?!80)[0-9]++",  # Python's and Java's
        "client_instance_id=b69cc35a-7a54-4790-aa69-cc2bd4ee4538,client_software_version=11.1.*",
    ],
)
def test_clients_are_matched_by_pairs(cluster: AdminCluster, pairs: str) -> None:
    assert alter(cluster, (MATCH, SET, pairs)) == (0, None)


def test_a_subscription_has_a_name_and_checking_stores_nothing(cluster: AdminCluster) -> None:
    code, message = alter(cluster, (INTERVAL, SET, "60000"), name="")
    assert (code, message) == (INVALID_REQUEST, "Subscription name can't be empty")
    result = describe(cluster, "")
    assert (result.error_code, result.error_message) == (
        INVALID_REQUEST,
        "Client metrics subscription name must not be empty",
    )
    assert alter(cluster, (INTERVAL, SET, "60000"), validate_only=True) == (0, None)
    assert cluster.controller.version == 0
