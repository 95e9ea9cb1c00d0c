"""Settings of groups (KIP-848): set before the group exists, stored, described with their source, or rejected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rotunda.broker.config.offset_reset import OffsetReset, ResetStrategy
from rotunda.broker.metadata.configs.config_changes import BROKER, GROUP
from rotunda.broker.metadata.configs.config_descriptions import (
    DEFAULT_CONFIG,
    DYNAMIC_DEFAULT_BROKER_CONFIG,
    GROUP_CONFIG,
)
from rotunda.broker.protocol.api_keys import ApiKey
from tests.support.admin_cluster import AdminCluster
from tests.support.admin_configs import (
    APPEND,
    DELETE,
    SET,
    Change,
    alter_configs,
    describe_configs,
    described_configs,
)

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
INTERVAL = "consumer.assignment.interval.ms"
INVALID_REQUEST, INVALID_CONFIG = 42, 40


def alter(
    cluster: AdminCluster, *changes: Change, group: str = "g", validate_only: bool = False
) -> tuple[int, str | None]:
    return alter_configs(cluster, (GROUP, group), changes, validate_only=validate_only)


def describe(cluster: AdminCluster, group: str = "g", keys: list[str] | None = None) -> Any:
    return describe_configs(cluster, (GROUP, group), keys, include_synonyms=True, include_documentation=True)


def values_of(cluster: AdminCluster, group: str = "g") -> dict[str, tuple[str | None, int]]:
    return described_configs(cluster, (GROUP, group))


def test_every_process_knows_the_settings_of_a_group(cluster: AdminCluster) -> None:
    assert alter(cluster, (SESSION, SET, "50000"), (HEARTBEAT, SET, "6000")) == (0, None)
    cluster.settle()
    assert [dict(cache.group_configs("g")) for cache in cluster.handlers] == [{SESSION: "50000", HEARTBEAT: "6000"}] * 3
    cluster.restart_controller()
    assert alter(cluster, (SESSION, DELETE, None)) == (0, None)
    cluster.settle()
    assert [dict(cache.group_configs("g")) for cache in cluster.handlers] == [{HEARTBEAT: "6000"}] * 3
    assert dict(cluster.handlers[0].group_configs("other")) == {}


def test_settings_are_described_with_their_source(cluster: AdminCluster) -> None:
    """users.md row 8."""
    defaults = {
        HEARTBEAT: ("5000", DEFAULT_CONFIG),
        SESSION: ("45000", DEFAULT_CONFIG),
        INTERVAL: ("0", DEFAULT_CONFIG),
    }
    assert {name: value for name, value in values_of(cluster).items() if name.startswith("consumer.")} == defaults
    assert alter(cluster, (SESSION, SET, "50000")) == (0, None)
    assert values_of(cluster).items() >= (defaults | {SESSION: ("50000", GROUP_CONFIG)}).items()
    [config] = describe(cluster, keys=[SESSION]).configs
    assert [(each.name, each.value, each.source) for each in config.synonyms] == [
        (SESSION, "50000", GROUP_CONFIG),
        (f"group.{SESSION}", "45000", DEFAULT_CONFIG),
    ]
    assert (config.config_type, config.read_only, bool(config.documentation)) == (3, False, True)


def test_settings_of_share_groups(cluster: AdminCluster) -> None:
    """S117."""
    defaults = {
        "errors.deadletterqueue.copy.record.enable": "false",
        "errors.deadletterqueue.topic.name": "",
        "share.assignment.interval.ms": "0",
        "share.auto.offset.reset": "latest",
        "share.delivery.count.limit": "5",
        "share.heartbeat.interval.ms": "5000",
        "share.isolation.level": "read_uncommitted",
        "share.partition.max.record.locks": "2000",
        "share.record.lock.duration.ms": "30000",
        "share.renew.acknowledge.enable": "true",
        "share.session.timeout.ms": "45000",
    }
    assert {
        name: value for name, (value, _) in values_of(cluster).items() if not name.startswith("consumer.")
    } == defaults
    [reset] = describe(cluster, keys=["share.auto.offset.reset"]).configs
    assert (list(reset.synonyms), reset.config_source) == ([], DEFAULT_CONFIG)
    changes = [("share.auto.offset.reset", "by_duration:P1DT2.5S"), ("share.isolation.level", "read_committed")]
    assert alter(cluster, *((name, SET, text) for name, text in changes)) == (0, None)
    cluster.settle()
    config = cluster.handlers[0].share_group_config("g")
    assert config.offset_reset == OffsetReset(ResetStrategy.BY_DURATION, 86_402_500)
    assert (config.reads_committed, cluster.handlers[0].share_group_config("other").reads_committed) == (True, False)
    assert alter_configs(cluster, (BROKER, ""), [("group.share.assignment.interval.ms", SET, "500")]) == (0, None)
    cluster.settle()
    assert cluster.handlers[0].share_group_config("g").share_assignment_interval_ms == 500


def test_a_stored_value_outside_changed_bounds_is_clamped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """S117."""
    cluster = AdminCluster(tmp_path)
    assert alter(cluster, ("share.delivery.count.limit", SET, "9")) == (0, None)
    cluster.close()
    cluster = AdminCluster(tmp_path, settings={"group.share.max.delivery.count.limit": "6"})
    cluster.settle()
    assert cluster.handlers[0].share_group_config("g").share_delivery_count_limit == 6
    cluster.close()
    [warning] = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert warning == (
        "group g: share.delivery.count.limit=9 is above group.share.max.delivery.count.limit (6), which is used instead"
    )


def test_a_group_inherits_the_brokers_setting_with_its_source(cluster: AdminCluster) -> None:
    """As in Kafka 4.3: its source is the broker's."""
    setting = f"group.{INTERVAL}"
    assert alter_configs(cluster, (BROKER, ""), [(setting, SET, "500")]) == (0, None)
    assert values_of(cluster)[INTERVAL] == ("500", DYNAMIC_DEFAULT_BROKER_CONFIG)
    assert alter(cluster, (INTERVAL, SET, "700")) == (0, None)
    [config] = describe(cluster, keys=[INTERVAL]).configs
    assert [(each.name, each.value, each.source) for each in config.synonyms] == [
        (INTERVAL, "700", GROUP_CONFIG),
        (setting, "500", DYNAMIC_DEFAULT_BROKER_CONFIG),
        (setting, "0", DEFAULT_CONFIG),
    ]


def test_groups_with_settings_are_listed(cluster: AdminCluster) -> None:
    alter(cluster, (SESSION, SET, "50000"), group="b")
    alter(cluster, (SESSION, SET, "50000"), group="a")
    alter(cluster, (SESSION, DELETE, None), group="b")
    key = ApiKey.LIST_CONFIG_RESOURCES
    response = cluster.call(key, 1, {"resource_types": [GROUP]})
    assert [each.resource_name for each in response.config_resources] == ["a"]


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (("consumer.session.timeout", SET, "1"), INVALID_CONFIG, f"did you mean {SESSION}?"),
        (("streams.session.timeout.ms", SET, "45000"), INVALID_CONFIG, "Unknown group config name: streams.session"),
        (("share.record.lock.duration.ms", SET, "14999"), INVALID_CONFIG, "record.lock.duration.ms (15000), not 14999"),
        (("share.delivery.count.limit", SET, "11"), INVALID_CONFIG, "max.delivery.count.limit (10), not 11"),
        (("share.auto.offset.reset", SET, "none"), INVALID_CONFIG, "either 'earliest', 'latest' or of the format"),
        (("share.isolation.level", SET, "x"), INVALID_CONFIG, "one of: read_committed, read_uncommitted"),
        (("share.renew.acknowledge.enable", SET, "yes"), INVALID_CONFIG, "either true or false"),
        (("errors.deadletterqueue.topic.name", SET, "__dlq"), INVALID_CONFIG, "must not begin with '__'"),
        ((SESSION, SET, "soon"), INVALID_CONFIG, f"Invalid value soon for configuration {SESSION}"),
        ((SESSION, SET, "44999"), INVALID_CONFIG, "group.consumer.min.session.timeout.ms (45000), not 44999"),
        ((SESSION, SET, "60001"), INVALID_CONFIG, "group.consumer.max.session.timeout.ms (60000), not 60001"),
        ((HEARTBEAT, SET, "4999"), INVALID_CONFIG, "greater than or equal to"),
        ((HEARTBEAT, SET, "15001"), INVALID_CONFIG, "less than or equal to"),
        ((INTERVAL, SET, "15001"), INVALID_CONFIG, "group.consumer.max.assignment.interval.ms (15000), not 15001"),
        ((INTERVAL, SET, "-1"), INVALID_CONFIG, "greater than or equal to"),
        ((SESSION, APPEND, "1"), INVALID_CONFIG, "its type is not LIST"),
        ((SESSION, SET, None), INVALID_REQUEST, "Null value not supported"),
    ],
)
def test_invalid_changes_are_rejected_as_in_kafka(cluster: AdminCluster, change: Any, error: int, says: str) -> None:
    code, message = alter(cluster, change)
    assert code == error
    assert says in str(message)
    assert cluster.controller.version == 0


def test_a_heartbeat_interval_must_be_less_than_the_session_timeout(tmp_path: Path) -> None:
    limits = {"group.consumer.max.heartbeat.interval.ms": "50000"}
    cluster = AdminCluster(tmp_path, settings=limits)
    code, message = alter(cluster, (HEARTBEAT, SET, "45000"))
    assert (code, "must be less than" in str(message)) == (INVALID_CONFIG, True)
    cluster.close()


def test_there_is_no_default_group_and_checking_stores_nothing(cluster: AdminCluster) -> None:
    assert alter(cluster, (SESSION, SET, "50000"), group="")[0] == INVALID_REQUEST
    assert describe(cluster, "").error_code == INVALID_REQUEST
    assert alter(cluster, (SESSION, SET, "50000"), validate_only=True) == (0, None)
    assert cluster.controller.version == 0


def test_replacing_all_settings_resets_the_others(cluster: AdminCluster) -> None:
    alter(cluster, (SESSION, SET, "50000"), (HEARTBEAT, SET, "6000"))
    resource = {"resource_type": GROUP, "resource_name": "g", "configs": [{"name": HEARTBEAT, "value": "7000"}]}
    [outcome] = cluster.call(ApiKey.ALTER_CONFIGS, 2, {"resources": [resource]}).responses
    assert outcome.error_code == 0
    assert values_of(cluster)[HEARTBEAT] == ("7000", GROUP_CONFIG)
    assert values_of(cluster)[SESSION] == ("45000", DEFAULT_CONFIG)
