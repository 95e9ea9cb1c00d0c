"""Kafka's settings: served, stored without effect or rejected, and how a Kafka configuration is read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rotunda.broker.config.broker_config import BROKER_KEYS, BrokerConfig, load
from rotunda.broker.config.kafka import REJECTED, kafka_settings, kept_key, parse_settings, without_meaning
from rotunda.broker.config.keys import render
from rotunda.broker.config.notes import start_notes
from rotunda.broker.errors import ConfigError
from rotunda.broker.metadata.configs.config_changes import shown
from rotunda.broker.metadata.configs.config_descriptions import (
    DEFAULT_CONFIG,
    DYNAMIC_BROKER_CONFIG,
    STATIC_BROKER_CONFIG,
    ConfigEntry,
    describe_broker,
    describe_cluster_default,
)

#: Every setting of a Kafka 4.4 broker, as it describes them.
KAFKA = {
    **kafka_settings(),
    **parse_settings((Path(__file__).parent / "served_settings.txt").read_text(encoding="utf-8")),
}
NOTE = "settings without effect here (docs/configuration.md): "


def described(config: BrokerConfig) -> dict[str, ConfigEntry]:
    return {entry.name: entry for entry in describe_broker(config)}


def listeners(config: BrokerConfig) -> tuple[list[str], list[str]]:
    """Return the opened and the advertised listeners."""
    return [str(each) for each in config.bound_listeners], [str(each) for each in config.effective_advertised_listeners]


#: Settings with a default other than Kafka's: paths, values that depend on the machine, and those for one broker.
OTHER_DEFAULTS = {
    "broker.id",
    "group.consumer.assignment.interval.ms",
    "group.coordinator.rebalance.protocols",
    "group.initial.rebalance.delay.ms",
    "group.share.assignment.interval.ms",
    "listener.security.protocol.map",
    "listeners",
    "log.dir",
    "log.dirs",
    "node.id",
    "num.io.threads",
    "num.network.threads",
    "offsets.topic.num.partitions",
    "offsets.topic.replication.factor",
    "process.roles",
    "share.coordinator.state.topic.min.isr",
    "share.coordinator.state.topic.num.partitions",
    "share.coordinator.state.topic.replication.factor",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    "transaction.state.log.min.isr",
    "transaction.state.log.num.partitions",
    "transaction.state.log.replication.factor",
}
#: Settings that change while the broker runs in only one of the two.
OTHER_MODES = {"advertised.listeners"}


def test_settings_are_described_as_kafka_describes_them() -> None:
    """V16, V17: of 350 settings. Of those that are served the type is Kafka's, and nearly always the default."""
    config = load(None, {}, {})
    entries = described(config)
    kafka = KAFKA
    assert len(kafka) == 350
    assert kafka.keys() <= entries.keys()
    assert {name for name in kafka if entries[name].config_type != kafka[name].kind} == set()
    assert {name for name in kafka if entries[name].sensitive != kafka[name].sensitive} == set()
    assert {
        name for name in BROKER_KEYS.keys() & kafka if entries[name].read_only == kafka[name].dynamic
    } == OTHER_MODES
    assert {
        name
        for name in kafka
        if entries[name].value != (None if kafka[name].sensitive else render(kafka[name].default))
    } == OTHER_DEFAULTS
    assert {name for name in kafka.keys() - BROKER_KEYS if entries[name].read_only == kafka[name].dynamic} == set()


def test_a_file_with_a_default_of_kafka_is_accepted() -> None:
    """Unless it wants more replicas than one, no id, or a listener without authentication on all interfaces."""
    rejected = set()
    for name, setting in KAFKA.items():
        value = render(setting.default)
        try:
            load(None, {} if value is None else {name: value}, {})
        except ConfigError:
            rejected.add(name)
    replicated = ("offsets.topic", "share.coordinator.state.topic", "transaction.state.log")
    assert rejected == {
        "broker.id",
        "listeners",
        "share.coordinator.state.topic.min.isr",
        "transaction.state.log.min.isr",
        *(f"{name}.replication.factor" for name in replicated),
    }


def test_streams_groups_are_named_as_not_served() -> None:
    """Kafka's default of the setting has them: the broker starts, and its log has a line."""
    config = load(None, {"group.coordinator.rebalance.protocols": "classic,consumer,streams"}, {})
    assert list(start_notes(config)) == [
        "group.coordinator.rebalance.protocols has streams: streams groups are not served"
    ]


def test_no_secret_of_kafka_is_shown() -> None:
    secrets = [name for name, setting in KAFKA.items() if setting.sensitive]
    assert len(secrets) == 10
    for config in (
        load(None, {}, {}),
        load(None, {**dict.fromkeys(secrets, "sesame"), "sasl.jaas.config": 'M required password="sesame";'}, {}),
    ):
        entries = described(config)
        assert {entries[name].value for name in secrets} == {None}
        assert {synonym.value for name in secrets for synonym in entries[name].synonyms} <= {None}
        assert "sesame" not in str(list(config.described()))
        assert "sesame" not in str(list(start_notes(config)))


def test_no_secret_of_a_listener_is_shown() -> None:
    """Neither as set in a file, nor while the broker runs, nor by the line of the log on such a change."""
    name = "listener.name.plaintext.ssl.keystore.key"
    loaded = load(None, {name: "sesame"}, {})
    for config in (loaded, loaded.with_dynamic({name: "sesame"})):
        entry = described(config)[name]
        assert (entry.value, entry.sensitive, entry.config_type) == (None, True, 9)
        assert {synonym.value for synonym in entry.synonyms} == {None}
        assert "sesame" not in str(list(config.described()))
    assert shown({name: "sesame", "max.connections": "5"}) == {name: "(hidden)", "max.connections": "5"}


def test_each_setting_of_kafka_is_served_kept_or_rejected() -> None:
    """V16, V17: a setting that is newly served is removed from the tables of `broker.config.kafka`."""
    validated = {name for name in KAFKA if name in REJECTED or without_meaning(name)}
    assert validated | BROKER_KEYS.keys() >= KAFKA.keys()
    assert validated & BROKER_KEYS.keys() == set()
    assert kafka_settings().keys() & BROKER_KEYS.keys() == set()


def test_what_has_no_meaning_is_kept_and_named_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.replica.fetchers = 4\nmetric.reporters=x.Y\nzookeeper.connect=localhost:2181\n")
    config = load(
        file, {"delegation.token.secret.key": "secret"}, {"KAFKA_BACKGROUND_THREADS": "3", "KAFKA_OPTS": "-Dx"}
    )
    names = "background.threads, delegation.token.secret.key, metric.reporters, num.replica.fetchers, zookeeper.connect"
    assert list(start_notes(config)) == [NOTE + names]
    entry = described(config)["num.replica.fetchers"]
    assert (entry.value, entry.source, entry.config_type, entry.read_only) == ("4", STATIC_BROKER_CONFIG, 3, False)
    assert described(config)["zookeeper.connect"].value is None
    assert list(start_notes(load(None, {}, {}))) == []


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("background.threads", "0", "Value must be at least 1"),
        ("group.streams.max.size", "0", "Value must be at least 1"),
        ("log.cleaner.threads", "-1", "Value must be at least 0"),
    ],
)
def test_what_has_no_meaning_has_kafkas_range(name: str, value: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=f"Invalid value {value} for configuration {name}: {complaint}$"):
        load(None, {name: value}, {})


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"group.share.session.timeout.ms": "60001"}, "group.share.max.session.timeout.ms (60000)"),
        ({"group.share.min.delivery.count.limit": "4", "group.share.delivery.count.limit": "3"}, "limit (4) and"),
        ({"group.share.max.partition.max.record.locks": "2000"}, None),
        ({"group.share.max.heartbeat.interval.ms": "45000", "group.share.heartbeat.interval.ms": "45000"}, "45000)"),
        ({"group.consumer.heartbeat.interval.ms": "4000"}, "group.consumer.min.heartbeat.interval.ms (5000)"),
        ({"group.share.max.share.sessions": "199"}, "199 must be at least group.share.max.size (200)"),
    ],
)
def test_values_for_all_groups_are_within_those_for_one(settings: dict[str, str], complaint: str | None) -> None:
    """S130."""
    if complaint is None:
        load(None, settings, {})
        return
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        load(None, settings, {})


def test_no_cleaner_threads_are_a_setting_of_a_start_alone() -> None:
    """As in Kafka, where a file may have 0."""
    config = load(None, {"log.cleaner.threads": "0"}, {})
    with pytest.raises(ConfigError, match="Value must be at least 1 while the broker runs"):
        config.with_dynamic({"log.cleaner.threads": "0"})


def test_what_has_no_meaning_changes_while_it_runs_as_in_kafka() -> None:
    config = load(None, {}, {}).with_dynamic({"ssl.protocol": "TLSv1.2"}, {"background.threads": "5"})
    entries = described(config)
    assert (entries["ssl.protocol"].value, entries["ssl.protocol"].source) == ("TLSv1.2", DYNAMIC_BROKER_CONFIG)
    assert [each.name for each in describe_cluster_default(config)] == ["background.threads", "min.insync.replicas"]
    assert described(load(None, {}, {}))["background.threads"].source == DEFAULT_CONFIG
    with pytest.raises(ConfigError, match=r"Cannot update these configs dynamically: \[queued.max.requests]"):
        load(None, {}, {}).with_dynamic({"queued.max.requests": "1"})
    with pytest.raises(ConfigError, match=r"only per-listener using the listener prefix: \[ssl.keystore.location]"):
        load(None, {}, {}).with_dynamic({"ssl.keystore.location": "/x"})


@pytest.mark.parametrize("name", sorted(REJECTED))
def test_what_would_silently_not_be_done_is_rejected_with_the_reason(name: str) -> None:
    key = kept_key(name)
    assert key is not None
    default = render(key.default) or ""
    assert load(None, {name: default}, {}).layers == {}
    other = {"BOOLEAN": "true", "INT": "7"}.get(key.kind.name, "something")
    with pytest.raises(ConfigError) as rejected:
        load(None, {name: other}, {})
    assert str(rejected.value).endswith(f"for configuration {name}: {REJECTED[name]}")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("num.replica.fetcher", "num.replica.fetchers"),
        ("ssl.keystor.location", "ssl.keystore.location"),
        ("replica.lag.time.max", "replica.lag.time.max.ms"),
        ("advertised.listener", "advertised.listeners"),
    ],
)
def test_a_misspelt_setting_of_kafka_is_an_error(name: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=rf"unknown setting {name} .did you mean {hint}"):
        load(None, {name: "1"}, {})


def test_values_without_meaning_still_have_a_type() -> None:
    with pytest.raises(ConfigError, match=r"Invalid value many for configuration background.threads: Not a number"):
        load(None, {"background.threads": "many"}, {})


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"process.roles": "controller"}, "a controller without a broker is not supported"),
        ({"controller.quorum.voters": "1@a:1,2@b:1"}, "cannot join another controller"),
        ({"controller.quorum.bootstrap.servers": "a:1,b:1"}, "cannot join another controller"),
    ],
)
def test_what_asks_for_more_nodes_is_rejected(settings: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load(None, settings, {})


STOCK = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
}


def test_the_controllers_listener_is_not_opened_and_all_interfaces_become_the_address_that_clients_get() -> None:
    config = load(None, STOCK, {})
    assert listeners(config) == (["PLAINTEXT://127.0.0.1:9092"], ["PLAINTEXT://localhost:9092"])
    assert list(start_notes(config))[1:] == [
        "CONTROLLER://:9093 is not opened: the controller is a process of this broker and has no port",
        "PLAINTEXT://:9092 is opened as PLAINTEXT://127.0.0.1:9092, the address that clients are given; "
        "insecure.listen=true opens it on all interfaces",
    ]
    everywhere = load(None, {**STOCK, "insecure.listen": "true"}, {})
    assert listeners(everywhere)[0] == ["PLAINTEXT://:9092"]
    with pytest.raises(ConfigError, match=r"allow it with insecure.listen=true"):
        load(None, {**STOCK, "advertised.listeners": "PLAINTEXT://kafka-1:9092"}, {})
    with pytest.raises(ConfigError, match=r"at least one listener"):
        load(None, {**STOCK, "listeners": "CONTROLLER://:9093"}, {})


def test_variables_of_kafkas_images_follow_their_rules() -> None:
    """`___` is a hyphen; listeners follow from the advertised ones; variables that are not settings are ignored."""
    advertised = {"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:19092", "KAFKA_PORT": "tcp://10.0.0.1:9092"}
    assert listeners(load(None, {}, advertised)) == (["PLAINTEXT://127.0.0.1:19092"], ["PLAINTEXT://localhost:19092"])
    everywhere = {**advertised, "KAFKA_LISTENERS": "", "ROTUNDA_INSECURE_LISTEN": "true"}
    assert listeners(load(None, {}, everywhere))[0] == ["PLAINTEXT://0.0.0.0:19092"]
    named = {**advertised, "KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:9"}
    assert listeners(load(None, {}, named))[0] == ["PLAINTEXT://127.0.0.1:9"]
    hyphen = {"KAFKA_ZOOKEEPER_A___B__C_D": "1", "KAFKA_AUTHORIZER_CLASS_NAME": ""}
    assert set(load(None, {}, hyphen).layers) == {"zookeeper.a-b_c.d", "authorizer.class.name"}
    with pytest.raises(ConfigError, match=r"environment KAFKA_AUTHORIZER_CLASS_NAME: .*Java classes cannot be loaded"):
        load(None, {}, {"KAFKA_AUTHORIZER_CLASS_NAME": "x.Y"})


def test_a_variable_that_is_nearly_a_setting_is_named() -> None:
    environment = {"KAFKA_ADVERTISED_LISTENER": "x", "KAFKA_URL": "x", "KAFKA_HEAP_OPTS": "x", "KAFKA_BROKERS": "x"}
    assert list(start_notes(load(None, {}, environment))) == [
        "the environment's KAFKA_ADVERTISED_LISTENER is no setting and is left alone "
        "(did you mean KAFKA_ADVERTISED_LISTENERS?)"
    ]


def test_the_older_name_of_the_data_directory_counts_where_the_newer_is_not_set() -> None:
    assert str(load(None, {"log.dir": "/a"}, {}).data_dir) == "/a"
    assert str(load(None, {"log.dir": "/a", "log.dirs": "/b"}, {}).data_dir) == "/b"
