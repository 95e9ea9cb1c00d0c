"""Values that this version cannot read: rejected before they are stored, and set aside where they are stored."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from rotunda.broker.config.settings.sasl import SCRAM_SHA_256
from rotunda.broker.errors import ApiError
from rotunda.broker.metadata.configs.config_changes import BROKER, CLIENT_METRICS, GROUP, TOPIC
from rotunda.broker.metadata.configs.live_settings import LiveSettings
from rotunda.broker.metadata.configs.quota_entities import QuotaOp, stored_name
from rotunda.broker.metadata.configs.stored_values import check_readable
from rotunda.broker.metadata.features import GROUP_VERSION, FeatureUpdate, UpgradeType
from rotunda.broker.metadata.security.scram_users import Deletion, Upsertion
from rotunda.broker.metadata.store import entity_store
from rotunda.broker.metadata.store.entity_store import EntityKind, StoredValue
from rotunda.broker.metadata.store.metadata_store import MetadataStore
from rotunda.broker.metadata.thread_counts import configured_at_start
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.security.acl.acls import Acl, Operation, PatternType, Permission, ResourceType
from tests.support.admin_cluster import AdminCluster
from tests.support.admin_configs import DELETE, alter_configs
from tests.support.fakes import failing
from tests.support.results import present

USER = (("user", "alice"),)
ALLOWED = Acl(ResourceType.TOPIC, "t", PatternType.LITERAL, "User:a", "*", Operation.READ, Permission.ALLOW)
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


class Damage(NamedTuple):
    """A stored value that cannot be read, its name in the log, and how a client removes it."""

    kind: str
    name: str
    key: str
    value: StoredValue
    called: str
    remove: Callable[[AdminCluster], object]


def delete_config(resource_type: int, name: str, key: str) -> Callable[[AdminCluster], object]:
    return lambda cluster: alter_configs(cluster, (resource_type, name), [(key, DELETE, None)])


DAMAGES = [
    Damage(
        entity_store.TOPIC, "t", "retention.ms", "1_000", "retention.ms of topic t",
        delete_config(TOPIC, "t", "retention.ms"),
    ),
    Damage(
        entity_store.BROKER, "", "log.cleaner.backoff.ms", "NaN", "log.cleaner.backoff.ms of broker default",
        delete_config(BROKER, "", "log.cleaner.backoff.ms"),
    ),
    Damage(
        entity_store.BROKER, "1", "of.another.version", "x", "of.another.version of broker 1",
        delete_config(BROKER, "1", "of.another.version"),
    ),
    Damage(
        EntityKind.GROUP, "g", "consumer.session.timeout.ms", "1e3", "consumer.session.timeout.ms of group g",
        delete_config(GROUP, "g", "consumer.session.timeout.ms"),
    ),
    Damage(
        EntityKind.CLIENT_METRICS, "m", "interval.ms", "often", "interval.ms of client-metrics m",
        delete_config(CLIENT_METRICS, "m", "interval.ms"),
    ),
    Damage(
        EntityKind.CLIENT_QUOTA, stored_name(USER), "producer_byte_rate", -1.0,
        'producer_byte_rate of client-quota [["user","alice"]]',
        lambda cluster: cluster.controller.alter_client_quotas(
            USER, [QuotaOp("producer_byte_rate", None)], validate_only=False
        ),
    ),
    Damage(
        EntityKind.FEATURE, GROUP_VERSION, "level", "high", "level of feature group.version",
        lambda cluster: cluster.controller.update_features(
            [FeatureUpdate(GROUP_VERSION, 1, UpgradeType.UPGRADE)], validate_only=False
        ),
    ),
    Damage(
        EntityKind.USER_CREDENTIAL, "alice", SCRAM_SHA_256, "salt=", "SCRAM-SHA-256 of user-credential alice",
        lambda cluster: cluster.controller.alter_user_credentials("alice", [Deletion("alice", 1)]),
    ),
]  # fmt: skip

#: Values that no request can name: they are removed by hand.
UNNAMED = [
    (EntityKind.CLIENT_QUOTA, '[["user"', "producer_byte_rate", 1.0),
    (EntityKind.CLIENT_QUOTA, '[["user",["a"]]]', "producer_byte_rate", 1.0),
    (EntityKind.ACL, '[2,"t"', "", 1),
    (EntityKind.ACL, '[2,["t"],3,"User:a","*",3,3]', "", 1),
    (EntityKind.ACL, "[2,'t']", "", 1),
]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[AdminCluster]:
    """Yield a cluster that has something of each kind."""
    made = AdminCluster(tmp_path, settings=SETTINGS)
    made.create("t", configs={"segment.ms": "5000"})
    controller = made.controller
    for _ in controller.acls.create([ALLOWED]):
        pass
    controller.alter_client_quotas(USER, [QuotaOp("consumer_byte_rate", 5.0)], validate_only=False)
    controller.alter_user_credentials("bob", [Upsertion("bob", 1, 4096, b"s", b"p")])
    yield made
    made.close()


def store(cluster: AdminCluster, damage: Damage) -> None:
    """Write the value as no controller does: in addition to those of the same entity."""
    with closing(MetadataStore.open(cluster.path)) as opened, opened.transaction() as transaction:
        if damage.kind == entity_store.TOPIC:
            topic = present(cluster.metadata.topic(damage.name))
            transaction.set_topic_configs(topic.topic_id, damage.name, {**topic.configs, damage.key: str(damage.value)})
        elif damage.kind == entity_store.BROKER:
            good = {} if damage.name else {"message.max.bytes": "5000"}
            transaction.set_broker_configs(damage.name, {**good, damage.key: str(damage.value)})
        else:
            good = {"consumer_byte_rate": 5.0} if damage.name == stored_name(USER) else {}
            transaction.set_entity(EntityKind(damage.kind), damage.name, {**good, damage.key: damage.value})


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the lines of a start that are errors, and forget them."""
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    caplog.clear()
    return lines


def assert_the_rest_is_read(cluster: AdminCluster) -> None:
    """Check that the fixture's values are in the caches of a handler, of an acceptor, and at a start."""
    cache = cluster.new_cache()
    cache.refresh()
    assert cache.log_config(present(cache.topic("t"))).segment_ms == 5000
    assert cache.client_quotas[USER]["consumer_byte_rate"] == 5.0
    assert "bob" in cache.user_credentials
    assert cache.authorizer is not None
    assert list(cache.authorizer) == [ALLOWED]
    cache.close()
    live = LiveSettings(cluster.path, cluster.config, lambda: cluster.controller.version, lambda: 0)
    assert live.client_quotas[USER]["consumer_byte_rate"] == 5.0
    assert live.user_credentials.find(SCRAM_SHA_256, "bob") is not None
    live.close()
    assert configured_at_start(cluster.config).num_io_threads == cluster.config.num_io_threads


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.called)
def test_an_unreadable_value_is_set_aside_until_it_is_removed(
    cluster: AdminCluster, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    """A running process ignores it, and so does a start, which names it in one line."""
    store(cluster, damage)
    cluster.settle()
    cluster.restart_controller()
    [line] = errors(caplog)
    assert line.startswith(f"{damage.called} cannot be read and has no effect: ")
    assert "set it again" in line
    assert_the_rest_is_read(cluster)
    outcome = damage.remove(cluster)
    assert outcome in (None, (0, None))
    cluster.restart_controller()
    assert errors(caplog) == []
    assert_the_rest_is_read(cluster)


@pytest.mark.parametrize(("kind", "name", "key", "value"), UNNAMED)
def test_what_nobody_can_name_is_removed_by_hand(
    cluster: AdminCluster, kind: EntityKind, name: str, key: str, value: StoredValue, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(MetadataStore.open(cluster.path)) as opened, opened.transaction() as transaction:
        transaction.set_entity(kind, name, {key: value})
    cluster.settle()
    cluster.restart_controller()
    [line] = errors(caplog)
    assert f"sqlite3 {cluster.path} " in line
    assert "DELETE FROM entities WHERE kind = " in line
    assert_the_rest_is_read(cluster)


def test_a_kind_of_another_version_has_no_effect(cluster: AdminCluster) -> None:
    with closing(MetadataStore.open(cluster.path)) as opened, opened.transaction() as transaction:
        transaction.set_entity("delegation-token", "x", {"y": "z"})  # type: ignore[arg-type]
    cluster.settle()
    cluster.restart_controller()
    assert_the_rest_is_read(cluster)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.called)
def test_a_store_asks_before_it_stores(cluster: AdminCluster, damage: Damage, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the check of the controller, nothing of the change is stored."""
    real = MetadataStore.open

    def checked(path: Path) -> MetadataStore:
        return real(path, check=check_readable)

    before = cluster.controller.version
    monkeypatch.setattr(MetadataStore, "open", checked)
    with pytest.raises(ApiError, match="no process could read it"):
        store(cluster, damage)
    monkeypatch.undo()
    with closing(MetadataStore.open(cluster.path)) as opened:
        assert opened.change == before


def test_records_are_kept_while_what_keeps_them_cannot_be_read(cluster: AdminCluster) -> None:
    """Such as the retention of a version that read 1_000_000_000_000: the broker's own would delete records."""
    store(cluster, DAMAGES[0])
    cache = cluster.new_cache()
    cache.refresh()
    topic = present(cache.topic("t"))
    assert cache.log_config(topic).retention == (-1, -1)
    assert not cache.log_config(topic).compacts
    assert topic.configs == {"segment.ms": "5000"}
    cluster.restart_controller()
    DAMAGES[0].remove(cluster)
    cache.refresh()
    assert cache.log_config(topic).retention == (-1, 7 * 24 * 3600 * 1000)
    with closing(MetadataStore.open(cluster.path)) as opened, opened.transaction() as transaction:
        transaction.set_broker_configs("", {"log.retention.ms": "1_000_000_000_000"})
    cache.refresh()
    assert cache.log_config(topic).retention == (-1, -1)
    assert configured_at_start(cluster.config).log_retention_ms == -1
    cache.close()


def test_settings_that_do_not_go_together_are_set_aside_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Set while the broker ran, and against the file of the next start."""
    lag = "log.cleaner.max.compaction.lag.ms"
    running = AdminCluster(tmp_path)
    for key, value in ((lag, "1000"), ("message.max.bytes", "5000")):
        assert alter_configs(running, (BROKER, ""), [(key, 0, value)]) == (0, None)
    running.close()
    restarted = AdminCluster(tmp_path, settings={"log.cleaner.min.compaction.lag.ms": "2000"})
    [line] = errors(caplog)
    assert line.startswith(f"{lag} of broker default cannot be read and has no effect: ")
    assert restarted.metadata.broker_config.message_max_bytes == 5000
    # Another change is none of it, and it can be deleted.
    assert alter_configs(restarted, (BROKER, "1"), [("message.max.bytes", 0, "6000")]) == (0, None)
    assert alter_configs(restarted, (BROKER, ""), [(lag, DELETE, None)]) == (0, None)
    restarted.restart_controller()
    assert errors(caplog) == []
    restarted.close()


def test_what_two_levels_say_together_is_checked(cluster: AdminCluster) -> None:
    """Each is valid by itself: no request could put both in force."""
    low, high = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"
    assert alter_configs(cluster, (BROKER, ""), [(low, 0, "2000")]) == (0, None)
    code, message = alter_configs(cluster, (BROKER, "1"), [(high, 0, "1000")])
    assert (code, "compaction.lag.ms" in str(message)) == (ErrorCode.INVALID_REQUEST, True)
    assert cluster.metadata.broker_overrides.keys() == {""}


def test_a_fault_in_applying_ends_nothing(cluster: AdminCluster, caplog: pytest.LogCaptureFixture) -> None:
    live = LiveSettings(cluster.path, cluster.config, lambda: cluster.controller.version, lambda: 0)
    applied: list[int] = []
    live.apply(failing(OverflowError("signed integer is greater than maximum")), lambda: applied.append(1))
    live.close()
    assert applied == [1]
    assert errors(caplog) == ["cannot apply all settings in this process"]
