"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: stored values, described values, rejections."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from rotunda.broker.apis.table import API_TABLE
from rotunda.broker.config.topic_config import TOPIC_CONFIGS
from rotunda.broker.metadata.configs.config_changes import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from rotunda.broker.metadata.configs.config_descriptions import (
    DEFAULT_CONFIG,
    DYNAMIC_BROKER_CONFIG,
    DYNAMIC_DEFAULT_BROKER_CONFIG,
    TOPIC_CONFIG,
)
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.server_log import log_levels
from tests.support.admin_cluster import AdminCluster
from tests.support.admin_configs import APPEND, DELETE, SET, SUBTRACT, Change, alter_configs, describe_configs
from tests.support.results import present

DESCRIBE_VERSIONS = range(1, 5)


@pytest.fixture
def cluster(cluster: AdminCluster) -> AdminCluster:
    cluster.create("orders")
    return cluster


def describe(
    cluster: AdminCluster, resource_type: int, name: str, keys: Any = None, version: int = 4, **flags: bool
) -> Any:
    return describe_configs(cluster, (resource_type, name), keys, version, **flags)


def alter(
    cluster: AdminCluster,
    resource_type: int,
    name: str,
    *changes: Change,
    validate_only: bool = False,
    version: int = 1,
) -> tuple[int, str | None]:
    return alter_configs(cluster, (resource_type, name), changes, validate_only=validate_only, version=version)


def replace(
    cluster: AdminCluster, name: str, configs: dict[str, str | None], version: int = 2, **fields: bool
) -> tuple[int, str | None]:
    listed = [{"name": key, "value": value} for key, value in configs.items()]
    resource = {"resource_type": TOPIC, "resource_name": name, "configs": listed}
    request = {"resources": [resource], "validate_only": False, **fields}
    [result] = cluster.call(ApiKey.ALTER_CONFIGS, version, request).responses
    return result.error_code, result.error_message


def own_configs(cluster: AdminCluster, name: str = "orders") -> dict[str, str]:
    topic = present(cluster.metadata.topic(name))
    return dict(topic.configs)


@pytest.mark.parametrize("version", DESCRIBE_VERSIONS)
def test_every_setting_of_a_topic_is_described(cluster: AdminCluster, version: int) -> None:
    """users.md row 8: all settings, with default, source, synonyms and type."""
    alter(cluster, TOPIC, "orders", ("cleanup.policy", SET, "compact"))
    result = describe(cluster, TOPIC, "orders", version=version, include_synonyms=True, include_documentation=True)
    entries = {entry.name: entry for entry in result.configs}
    assert set(entries) == {name for name, key in TOPIC_CONFIGS.items() if not key.internal}
    policy, retention = entries["cleanup.policy"], entries["retention.ms"]
    assert (policy.value, policy.config_source) == ("compact", TOPIC_CONFIG)
    assert (retention.value, retention.config_source) == ("604800000", DEFAULT_CONFIG)
    assert [(each.name, each.source) for each in policy.synonyms] == [
        ("cleanup.policy", TOPIC_CONFIG),
        ("log.cleanup.policy", DEFAULT_CONFIG),
    ]
    if version >= 3:
        assert all(entry.config_type > 0 and entry.documentation for entry in result.configs)


def test_only_requested_settings_are_described(cluster: AdminCluster) -> None:
    result = describe(cluster, TOPIC, "orders", ["cleanup.policy", "no.such"])
    [entry] = result.configs
    assert (entry.name, entry.synonyms, entry.documentation) == ("cleanup.policy", (), None)


def test_settings_of_the_broker_are_described(cluster: AdminCluster) -> None:
    entries = {entry.name: entry for entry in describe(cluster, BROKER, "1").configs}
    assert entries["node.id"].value == "1"
    assert entries["node.id"].read_only
    assert not entries["message.max.bytes"].read_only
    assert [entry.name for entry in describe(cluster, BROKER, "").configs] == ["min.insync.replicas"]


@pytest.mark.parametrize("version", DESCRIBE_VERSIONS)
def test_the_error_message_of_a_success_is_empty(cluster: AdminCluster, version: int) -> None:
    """As in Kafka, and not null."""
    for resource_type, name in ((TOPIC, "orders"), (BROKER, "1"), (BROKER, ""), (GROUP, "g")):
        result = describe(cluster, resource_type, name, version=version)
        assert (result.error_code, result.error_message) == (0, "")


@pytest.mark.parametrize(
    ("resource_type", "name", "error"),
    [
        (TOPIC, "nowhere", 3),
        (TOPIC, "bad name", 17),
        (TOPIC, "", 17),
        (BROKER, "2", 42),
        (BROKER, "x", 42),
        (99, "x", 42),
    ],
)
def test_unknown_resources_are_rejected(cluster: AdminCluster, resource_type: int, name: str, error: int) -> None:
    result = describe(cluster, resource_type, name)
    assert (result.error_code, result.configs) == (error, ())
    assert result.error_message


@pytest.mark.parametrize("version", range(2))
def test_settings_are_set_and_unset(cluster: AdminCluster, version: int) -> None:
    changes = ("retention.ms", SET, "5000"), ("segment.bytes", SET, "2097152")
    assert alter(cluster, TOPIC, "orders", *changes, version=version) == (0, None)
    assert own_configs(cluster) == {"retention.ms": "5000", "segment.bytes": "2097152"}
    assert cluster.announced == [cluster.controller.version]
    assert alter(cluster, TOPIC, "orders", ("retention.ms", DELETE, None), version=version) == (0, None)
    assert own_configs(cluster) == {"segment.bytes": "2097152"}


def test_lists_are_appended_to_inherited_values(cluster: AdminCluster) -> None:
    alter(cluster, TOPIC, "orders", ("cleanup.policy", APPEND, "compact"))
    assert own_configs(cluster) == {"cleanup.policy": "delete,compact"}
    alter(cluster, TOPIC, "orders", ("cleanup.policy", APPEND, "compact"))
    assert own_configs(cluster) == {"cleanup.policy": "delete,compact"}
    alter(cluster, TOPIC, "orders", ("cleanup.policy", SUBTRACT, "delete"))
    assert own_configs(cluster) == {"cleanup.policy": "compact"}


@pytest.mark.parametrize(
    ("name", "changes", "error", "message"),
    [
        ("orders", [("retention.ms", APPEND, "1")], 40, "Can't APPEND to key retention.ms"),
        ("orders", [("no.such", SET, "1")], 40, "Unknown topic config name: no.such"),
        ("orders", [("retention.ms", SET, "soon")], 40, "Invalid value soon for configuration retention.ms"),
        ("orders", [("retention.ms", SET, None)], 42, "Null value not supported for : retention.ms"),
        ("orders", [("retention.ms", 9, "1")], 42, "Unknown operation type 9"),
        ("orders", [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], 42, "duplicate config keys"),
        ("nowhere", [("retention.ms", SET, "1")], 3, "The topic 'nowhere' does not exist."),
        ("", [("retention.ms", SET, "1")], 42, "Default topic resources are not allowed."),
        ("bad name", [("retention.ms", SET, "1")], 17, "Topic name is invalid"),
    ],
)
def test_bad_changes_are_rejected_and_change_nothing(
    cluster: AdminCluster, name: str, changes: Any, error: int, message: str
) -> None:
    version_before = cluster.controller.version
    code, text = alter(cluster, TOPIC, name, ("segment.bytes", SET, "2097152"), *changes)
    assert code == error
    assert message in (text or "")
    assert cluster.controller.version == version_before


@pytest.mark.parametrize(
    ("resource", "changes", "error", "message"),
    [
        ((TOPIC, "orders"), [("a", 9, None), ("a", SET, "1")], 42, "Error due to duplicate config keys"),
        ((TOPIC, "orders"), [("a", 9, None), ("b", SET, None)], 42, "Null value not supported for : a, b"),
        ((TOPIC, "orders"), [("a", 9, "1"), ("no.such", SET, "1")], 42, "Unknown operation type 9"),
        ((TOPIC, "bad name"), [("retention.ms", APPEND, "1")], 40, "Can't APPEND to key retention.ms"),
        ((TOPIC, ""), [("retention.ms", APPEND, "1")], 40, "Can't APPEND to key retention.ms"),
        ((TOPIC, "bad name"), [("no.such", SET, "1")], 17, "Topic name is invalid"),
        ((TOPIC, "nowhere"), [("no.such", SET, "1")], 40, "Unknown topic config name: no.such"),
        ((GROUP, ""), [("no.such", APPEND, "1")], 40, "Can't APPEND to key no.such"),
        ((GROUP, ""), [("no.such", SET, "1")], 42, "Default group resources are not allowed."),
        ((99, "x"), [("a", SET, "1"), ("a", SET, "1")], 42, "Error due to duplicate config keys"),
        ((99, "x"), [("a", 9, "1")], 42, "Unknown resource type 99"),
        ((BROKER, "2"), [("no.such", 9, "1")], 42, "Unexpected broker id"),
        ((BROKER, "1"), [("node.id", SET, "5"), ("message.max.bytes", SET, "x")], 42, "dynamically: [node.id]"),
    ],
)
def test_of_several_faults_kafkas_first_is_the_error(
    cluster: AdminCluster, resource: tuple[int, str], changes: Any, error: int, message: str
) -> None:
    """Compared with Apache Kafka 4.4.0, which has UNKNOWN_SERVER_ERROR for an unknown operation on a topic."""
    code, text = alter(cluster, *resource, *changes)
    assert code == error
    assert message in (text or "")


def test_a_list_has_kafkas_largest_size(cluster: AdminCluster) -> None:
    key, replicas = "follower.replication.throttled.replicas", ",".join(f"{index}:1" for index in range(6_000))
    assert len(replicas) > 2**15
    half = replicas[: 2**14].rpartition(",")[0]
    assert alter(cluster, TOPIC, "orders", (key, APPEND, half)) == (0, None)
    rest = replicas.removeprefix(half + ",")[: 2**14 + 100].rpartition(",")[0]
    code, text = alter(cluster, TOPIC, "orders", (key, APPEND, rest))
    assert (code, "maximum value size of 32767 bytes" in (text or "")) == (40, True)
    assert own_configs(cluster) == {key: half}


def test_nothing_is_no_item_of_a_list(cluster: AdminCluster) -> None:
    assert alter(cluster, TOPIC, "orders", ("cleanup.policy", APPEND, ""))[0] == 40
    assert alter(cluster, TOPIC, "orders", ("cleanup.policy", SUBTRACT, "")) == (0, None)


def test_a_setting_may_be_replaced_only_once(cluster: AdminCluster) -> None:
    listed = [{"name": "retention.ms", "value": value} for value in ("1", None)]
    resource = {"resource_type": TOPIC, "resource_name": "orders", "configs": listed}
    request = {"resources": [resource], "validate_only": False}
    [result] = cluster.call(ApiKey.ALTER_CONFIGS, 2, request).responses
    assert (result.error_code, result.error_message) == (42, "Error due to duplicate config keys")


def test_a_resource_may_appear_only_once(cluster: AdminCluster) -> None:
    resource = {"resource_type": TOPIC, "resource_name": "orders", "configs": []}
    fields = {"resources": [resource, resource], "validate_only": False}
    response = cluster.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, fields)
    assert [each.error_code for each in response.responses] == [42]


def test_a_change_can_be_tried_first(cluster: AdminCluster) -> None:
    change = ("retention.ms", SET, "1")
    assert alter(cluster, TOPIC, "orders", change, validate_only=True) == (0, None)
    assert own_configs(cluster) == {}
    assert replace(cluster, "orders", {"retention.ms": "1"}, validate_only=True) == (0, None)
    assert own_configs(cluster) == {}


@pytest.mark.parametrize("version", range(3))
def test_alter_configs_replaces_all_settings(cluster: AdminCluster, version: int) -> None:
    alter(cluster, TOPIC, "orders", ("segment.bytes", SET, "2097152"))
    assert replace(cluster, "orders", {"retention.ms": "1"}, version) == (0, None)
    assert own_configs(cluster) == {"retention.ms": "1"}
    assert replace(cluster, "orders", {"retention.ms": None}, version)[0] == 42
    assert replace(cluster, "orders", {}, version) == (0, None)
    assert own_configs(cluster) == {}


def test_row_8_all_described_settings_can_be_written_back(cluster: AdminCluster) -> None:
    """Row 8: AlterConfigs resets settings that are not named; a tool that received none reset all (Nisshi)."""
    alter(cluster, TOPIC, "orders", ("cleanup.policy", SET, "compact"))
    values = {entry.name: entry.value for entry in describe(cluster, TOPIC, "orders").configs}
    values["retention.ms"] = "2000"
    assert replace(cluster, "orders", values) == (0, None)
    assert {entry.name: entry.value for entry in describe(cluster, TOPIC, "orders").configs} == values


def test_broker_settings_change_while_it_runs(cluster: AdminCluster) -> None:
    change = ("log.retention.ms", SET, "1000")
    assert alter(cluster, BROKER, "", change) == (0, None)
    assert describe(cluster, BROKER, "1", ["log.retention.ms"]).configs[0].config_source == (
        DYNAMIC_DEFAULT_BROKER_CONFIG
    )
    assert alter(cluster, BROKER, "1", ("log.retention.ms", SET, "2000")) == (0, None)
    entry = describe(cluster, BROKER, "1", ["log.retention.ms"]).configs[0]
    assert (entry.value, entry.config_source) == ("2000", DYNAMIC_BROKER_CONFIG)
    [default, _] = describe(cluster, BROKER, "").configs
    assert (default.name, default.value) == ("log.retention.ms", "1000")
    assert describe(cluster, TOPIC, "orders", ["retention.ms"]).configs[0].value == "2000"
    assert alter(cluster, BROKER, "1", ("log.retention.ms", DELETE, None)) == (0, None)
    assert describe(cluster, TOPIC, "orders", ["retention.ms"]).configs[0].value == "1000"


@pytest.mark.parametrize(
    ("name", "change", "error"),
    [
        ("1", ("listeners", SET, "PLAINTEXT://:1"), 42),
        ("1", ("no.such", SET, "1"), 42),
        ("1", ("message.max.bytes", SET, "-5"), 42),
        ("1", ("message.max.bytes", APPEND, "5"), 40),
        ("2", ("message.max.bytes", SET, "5"), 42),
        ("01", ("message.max.bytes", SET, "5"), 42),
        ("one", ("message.max.bytes", SET, "5"), 42),
    ],
)
def test_bad_broker_changes_are_rejected(
    cluster: AdminCluster, name: str, change: tuple[str, int, str | None], error: int
) -> None:
    code, text = alter(cluster, BROKER, name, change)
    assert code == error
    assert text
    assert cluster.metadata.broker_overrides == {}


def test_settings_of_tls_and_sasl_are_kept_for_one_broker(cluster: AdminCluster) -> None:
    """users.md row 8: tools that set them succeed. Compared with Apache Kafka 4.4.0."""
    relogin = "sasl.kerberos.min.time.before.relogin"
    [entry] = describe(cluster, BROKER, "1", [relogin]).configs
    assert (entry.value, entry.config_source, entry.config_type, entry.read_only) == ("60000", DEFAULT_CONFIG, 5, False)
    assert alter(cluster, BROKER, "1", (relogin, SET, "60001"), ("sasl.enabled.mechanisms", APPEND, "PLAIN")) == (
        0,
        None,
    )
    entries = {each.name: each for each in describe(cluster, BROKER, "1", include_synonyms=True).configs}
    assert [(each.value, each.source) for each in entries[relogin].synonyms] == [
        ("60001", DYNAMIC_BROKER_CONFIG),
        ("60000", DEFAULT_CONFIG),
    ]
    assert entries["sasl.enabled.mechanisms"].value == "GSSAPI,PLAIN"
    assert (entries["sasl.kerberos.service.name"].value, entries["ssl.cipher.suites"].value) == (None, "")
    assert entries["sasl.login.refresh.buffer.seconds"].config_type == 4
    assert alter(cluster, BROKER, "1", (relogin, DELETE, None)) == (0, None)


@pytest.mark.parametrize(
    ("name", "key", "value", "message"),
    [
        ("1", "sasl.kerberos.min.time.before.relogin", "x", "Invalid value x for configuration sasl.kerberos"),
        ("1", "sasl.login.refresh.buffer.seconds", "99999", "Not a number of type SHORT"),
        ("1", "ssl.client.auth", "maybe", "String must be one of: required, requested, none"),
        (
            "1",
            "security.inter.broker.protocol",
            "SSL",
            "configs dynamically: [security.inter.broker.protocol]",
        ),
        ("1", "ssl.keystore.location", "/x", "only per-listener using the listener prefix: [ssl.keystore.location]"),
        ("", "sasl.kerberos.min.time.before.relogin", "x", "Invalid value x for configuration sasl.kerberos"),
        (
            "",
            "sasl.kerberos.min.time.before.relogin",
            "60001",
            "Cannot update these configs at default cluster level, broker id must be specified: [sasl.kerberos",
        ),
    ],
)
def test_settings_of_tls_and_sasl_that_are_rejected(
    cluster: AdminCluster, name: str, key: str, value: str, message: str
) -> None:
    code, text = alter(cluster, BROKER, name, (key, SET, value))
    assert code == 42
    assert message in (text or "")
    assert cluster.metadata.broker_overrides == {}


@pytest.mark.parametrize(
    ("name", "change", "error", "message"),
    [
        ("1", ("kafka", SET, "DEBUG"), 40, "Logger kafka does not exist!"),
        (
            "1",
            ("rotunda.broker.network", SET, "LOUD"),
            40,
            "Valid log levels are FATAL, ERROR, WARN, INFO, DEBUG, TRACE",
        ),
        ("1", ("root", DELETE, None), 42, "Removing the log level of the root logger is not allowed"),
        ("1", ("root", APPEND, "INFO"), 42, "APPEND operation is not allowed for the BROKER_LOGGER resource"),
        ("2", ("root", SET, "INFO"), 42, "Unexpected broker id, expected 1, but received 2"),
        ("", ("root", SET, "INFO"), 42, "Node id must be an integer"),
    ],
)
def test_levels_that_are_rejected(cluster: AdminCluster, name: str, change: Any, error: int, message: str) -> None:
    """KIP-412, with the errors of Kafka's RuntimeLoggerManager."""
    code, text = alter(cluster, BROKER_LOGGER, name, ("rotunda.broker.handler", SET, "ERROR"), change)
    assert code == error
    assert message in (text or "")
    assert cluster.metadata.log_levels == {}


def test_a_logger_without_a_level_has_that_of_the_one_above(cluster: AdminCluster) -> None:
    """KIP-412: levels are described for every logger, and reset only by the next start."""

    def levels() -> list[str | None]:
        entries = {each.name: each for each in describe(cluster, BROKER_LOGGER, "1").configs}
        assert {each.config_source for each in entries.values()} == {6}
        return [
            entries[name].value
            for name in ("root", "rotunda.broker.network", "rotunda.broker.network.acceptor.acceptor")
        ]

    before = logging.getLogger().level
    assert levels() == ["INFO", "INFO", "INFO"]
    changes = ("root", SET, "WARN"), ("rotunda.broker.network.acceptor.acceptor", SET, "TRACE")
    assert alter(cluster, BROKER_LOGGER, "1", *changes, validate_only=True) == (0, None)
    assert levels() == ["INFO", "INFO", "INFO"]
    assert alter(cluster, BROKER_LOGGER, "1", *changes) == (0, None)
    try:
        assert levels() == ["WARN", "WARN", "TRACE"]
        assert logging.getLogger("rotunda.broker.network.acceptor.acceptor").getEffectiveLevel() < logging.DEBUG
        assert logging.getLogger("rotunda.broker.network").getEffectiveLevel() == logging.WARNING
        assert alter(cluster, BROKER_LOGGER, "1", ("rotunda.broker.network.acceptor.acceptor", DELETE, None)) == (
            0,
            None,
        )
        assert levels() == ["WARN", "WARN", "WARN"]
        assert cluster.metadata.broker_overrides == {}
    finally:
        log_levels.apply({})
        logging.getLogger().setLevel(before)


def test_levels_do_not_change_by_the_older_api(cluster: AdminCluster) -> None:
    resource = {"resource_type": BROKER_LOGGER, "resource_name": "1", "configs": [{"name": "root", "value": "WARN"}]}
    request = {"resources": [resource], "validate_only": False}
    [result] = cluster.call(ApiKey.ALTER_CONFIGS, 2, request).responses
    assert (result.error_code, "Unknown resource type 8" in result.error_message) == (42, True)


@pytest.mark.parametrize(
    "key", [ApiKey.DESCRIBE_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.LIST_CONFIG_RESOURCES]
)
def test_the_page_of_apis_names_every_resource_type_that_has_settings(cluster: AdminCluster, key: ApiKey) -> None:
    listed = cluster.call(ApiKey.LIST_CONFIG_RESOURCES, 1, {"resource_types": []})
    words = {
        TOPIC: "topics",
        BROKER: "broker",
        BROKER_LOGGER: "loggers",
        CLIENT_METRICS: "client metrics",
        GROUP: "groups",
    }
    of_everything = {each.resource_type for each in listed.config_resources} | {CLIENT_METRICS, GROUP}
    assert of_everything == words.keys()
    [note] = [api.note for api in API_TABLE if api.key == key]
    assert [word for word in words.values() if word not in note] == []
    assert "no broker loggers" not in note
