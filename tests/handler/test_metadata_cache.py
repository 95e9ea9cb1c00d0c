"""The metadata of a process, updated from the changes in the metadata file."""

from __future__ import annotations

import pytest

from rotunda.broker.metadata import metadata_cache
from rotunda.broker.metadata.configs.config_changes import BROKER, TOPIC, Alteration, ConfigChange, Operation
from rotunda.broker.metadata.metadata_cache import Changes
from rotunda.broker.metadata.store import metadata_reader
from rotunda.broker.metadata.topics.topic_validation import AddedPartitions, NewTopic
from rotunda.broker.protocol.routing import owner_of, topic_hash, topic_id_hash
from rotunda.shm.tables.partitions import STATE_CLOSED
from tests.support.admin_cluster import HANDLERS, AdminCluster
from tests.support.results import present

AT_ONCE = 4


def names(pairs: list) -> list[tuple[str, int]]:
    return sorted((topic.name, partition.index) for topic, partition in pairs)


def set_config(cluster: AdminCluster, resource_type: int, name: str, key: str, value: str) -> None:
    alteration = Alteration((ConfigChange(key, Operation.SET, value),))
    cluster.controller.alter_configs(resource_type, name, alteration, validate_only=False)


def test_owners_follow_routing(cluster: AdminCluster) -> None:
    topic = cluster.create("orders", 7)
    for partition in topic.partitions:
        assert partition.owner == owner_of(topic_hash(b"orders"), partition.index, HANDLERS)
    assert topic_id_hash(topic.topic_id) == topic_hash(b"orders")


def test_the_first_refresh_reports_everything_and_the_next_one_only_news(cluster: AdminCluster) -> None:
    cluster.controller.create_topics([NewTopic("a", 2), NewTopic("b", 1)])
    cache = cluster.new_cache()
    first = cache.refresh()
    assert names(first.created) == [("a", 0), ("a", 1), ("b", 0)]
    assert cache.refresh() == Changes([], [], [])
    topic = present(cache.topic("a"))
    cluster.controller.create_partitions([AddedPartitions(topic.name, 4)])
    assert names(cache.refresh().created) == [("a", 2), ("a", 3)]
    assert cache.version == cluster.controller.version
    cache.close()


def test_a_topic_deleted_and_created_again_is_another_topic(cluster: AdminCluster) -> None:
    """users.md row 14: a new topic id each time."""
    old = cluster.create("again", 2)
    cluster.delete("again")
    cluster.controller.create_topics([NewTopic("again", 1)])
    cache = cluster.handlers[0]
    changes = cache.refresh()
    new = present(cache.topic("again"))
    assert new.topic_id != old.topic_id
    assert cache.topic_by_id(old.topic_id) is None
    assert cache.topic_by_id(new.topic_id) is new
    assert {topic.topic_id for topic, _ in changes.deleted} == {old.topic_id}
    assert names(changes.deleted) == [("again", 0), ("again", 1)]
    assert [topic.topic_id for topic, _ in changes.created] == [new.topic_id]


def test_a_topic_created_and_deleted_unseen_is_reported_as_deleted(cluster: AdminCluster) -> None:
    cluster.controller.create_topics([NewTopic("brief", 2)])
    cluster.delete("brief")
    changes = cluster.handlers[0].refresh()
    assert changes.created == []
    assert names(changes.deleted) == [("brief", 0), ("brief", 1)]


def test_partitions_added_unseen_are_among_the_deleted(cluster: AdminCluster) -> None:
    topic = cluster.create("grown", 1)
    cluster.controller.create_partitions([AddedPartitions(topic.name, 3)])
    cluster.delete("grown")
    assert names(cluster.handlers[0].refresh().deleted) == [("grown", 0), ("grown", 1), ("grown", 2)]


def test_a_process_that_missed_a_tombstone_still_learns_of_the_deletion(cluster: AdminCluster) -> None:
    cluster.create("gone")
    cluster.create("other")
    sleeper = cluster.new_cache()
    sleeper.refresh()
    cluster.delete("gone")
    cluster.settle()
    cluster.delete("other")
    assert cluster.new_cache().refresh().deleted != []
    assert names(sleeper.refresh().deleted) == [("gone", 0), ("other", 0)]
    assert sleeper.topics() == []
    sleeper.close()


def test_a_replacement_gets_unfinished_deletions(cluster: AdminCluster) -> None:
    topic = cluster.create("left-over", 3)
    cluster.delete("left-over")
    replacement = cluster.new_cache()
    assert names(replacement.refresh().deleted) == [("left-over", index) for index in range(3)]
    assert all(cluster.table.state(partition.row) != STATE_CLOSED for partition in topic.partitions)
    replacement.close()


def test_topic_settings_are_applied_and_reported(cluster: AdminCluster) -> None:
    cluster.create("configured", configs={"segment.bytes": "2097152"})
    cache = cluster.handlers[0]
    assert cache.log_config(present(cache.topic("configured"))).segment_bytes == 2097152
    set_config(cluster, TOPIC, "configured", "segment.bytes", "4194304")
    [altered] = cache.refresh().altered
    assert cache.log_config(altered).segment_bytes == 4194304


def test_settings_of_all_brokers_reach_topics_unless_the_broker_has_its_own(cluster: AdminCluster) -> None:
    topic = cluster.create("plain")
    cache = cluster.handlers[0]
    set_config(cluster, BROKER, "", "log.retention.ms", "1000")
    assert [topic.name for topic in cache.refresh().altered] == ["plain"]
    assert cache.log_config(topic).retention_ms == 1000
    set_config(cluster, BROKER, "1", "log.retention.ms", "2000")
    cache.refresh()
    assert cache.log_config(topic).retention_ms == 2000
    assert cache.broker_overrides == {"": {"log.retention.ms": "1000"}, "1": {"log.retention.ms": "2000"}}


def test_a_partition_that_does_not_exist_is_none(cluster: AdminCluster) -> None:
    cluster.create("two", 2)
    assert cluster.metadata.partition("two", 1) is not None
    for name, index in (("two", 2), ("two", -1), ("none", 0)):
        assert cluster.metadata.partition(name, index) is None


def test_internal_topics_are_marked(cluster: AdminCluster) -> None:
    assert cluster.create("__consumer_offsets", 4).internal
    assert not cluster.create("__mine").internal


@pytest.fixture
def few_in_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit each step to four topics or partitions."""
    monkeypatch.setattr(metadata_reader, "_ROWS_AT_ONCE", AT_ONCE)
    monkeypatch.setattr(metadata_cache, "ELEMENTS_AT_ONCE", AT_ONCE)


@pytest.mark.usefixtures("few_in_each_step")
@pytest.mark.parametrize("missed_tombstones", [False, True])
def test_many_changes_are_applied_in_steps_each_once(cluster: AdminCluster, *, missed_tombstones: bool) -> None:
    """Between two steps each topic is in its old or new state; later announcements belong to the next refresh."""
    before = {cluster.create(f"before-{number}", 2).name for number in range(2 * AT_ONCE)}
    cluster.create("stays", 1)
    cache = cluster.new_cache()
    cache.refresh()
    version = cache.version
    for name in before:
        cluster.delete(name)
    if missed_tombstones:
        cluster.settle()
    after = {cluster.create(f"after-{number}", 1).name for number in range(2 * AT_ONCE)}
    changes = Changes([], [], [])
    steps = cache.refresh_in_steps(changes)
    next(steps)
    late = cluster.create("late", 1)
    taken = 1
    for _ in steps:
        taken += 1
        assert cache.version == version
        known = {topic.name for topic in cache.topics()}
        assert known == ({*before, "stays"} - {topic.name for topic, _ in changes.deleted}) | {
            topic.name for topic, _ in changes.created
        }
    assert taken > 8
    assert cache.version == cluster.controller.version - 1
    assert names(changes.deleted) == sorted((name, index) for name in before for index in range(2))
    assert names(changes.created) == sorted((name, 0) for name in after)
    assert {topic.name for topic in cache.topics()} == {*after, "stays"}
    assert [topic.topic_id for topic, _ in cache.refresh().created] == [late.topic_id]
    cache.close()


@pytest.mark.usefixtures("few_in_each_step")
def test_a_refresh_that_is_broken_off_is_made_good_by_the_next(cluster: AdminCluster) -> None:
    created = [cluster.create(f"made-{number}", 1) for number in range(2 * AT_ONCE)]
    cache = cluster.new_cache()
    changes = Changes([], [], [])
    steps = cache.refresh_in_steps(changes)
    while not changes.created:
        next(steps)
    steps.close()
    again = cache.refresh()
    assert names(changes.created + again.created) == sorted((topic.name, 0) for topic in created)
    assert cache.version == cluster.controller.version
    cache.close()
