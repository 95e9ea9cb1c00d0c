"""Groups' settings, quotas and features in the metadata file: announced when they change, in files of any age."""

from __future__ import annotations

import random
import sqlite3
from contextlib import nullcontext
from pathlib import Path

import pytest

from rotunda.broker.config.broker_config import load
from rotunda.broker.errors import ApiError
from rotunda.broker.metadata.configs.quota_entities import entity_text, stored_name
from rotunda.broker.metadata.features import INITIAL_LEVELS, LEVEL, SUPPORTED_FEATURES
from rotunda.broker.metadata.metadata_cache import MetadataCache
from rotunda.broker.metadata.store import entity_store, metadata_reader
from rotunda.broker.metadata.store.entity_store import EntityKind
from rotunda.broker.metadata.store.metadata_file import metadata_path
from rotunda.broker.metadata.store.metadata_reader import MetadataReader
from rotunda.broker.metadata.store.metadata_store import MetadataStore
from rotunda.broker.metadata.store.preparation import prepare
from rotunda.broker.protocol.error_codes import ErrorCode
from tests.support.results import present


def test_all_is_reported_once_and_then_what_changes(tmp_path: Path) -> None:
    path = metadata_path(tmp_path)
    store, reader = MetadataStore.open(path), MetadataReader(path)
    with store.transaction() as transaction:
        transaction.set_entity(EntityKind.GROUP, "a", {"x": "1"})
        transaction.set_entity(EntityKind.GROUP, "b", {"y": "2", "z": "3"})
    with store.transaction() as transaction:
        transaction.set_entity(EntityKind.CLIENT_QUOTA, "q", {"rate": 0.5})
    delta = present(reader.read(0))
    assert delta.entities == {
        EntityKind.FEATURE: INITIAL_LEVELS,
        EntityKind.CLIENT_QUOTA: {"q": {"rate": 0.5}},
        EntityKind.GROUP: {"a": {"x": "1"}, "b": {"y": "2", "z": "3"}},
    }
    assert delta.changed_entities == {}
    with store.transaction() as transaction:
        transaction.set_entity(EntityKind.GROUP, "a", {})
        transaction.set_entity(EntityKind.GROUP, "b", {"y": "4"})
    with store.transaction() as transaction:
        transaction.set_entity(EntityKind.GROUP, "b", {"y": "5"})
    delta = present(reader.read(2))
    assert (delta.entities, delta.changed_entities) == ({}, {EntityKind.GROUP: {"a": {}, "b": {"y": "5"}}})
    assert set(present(reader.read(1)).changed_entities) == {EntityKind.GROUP, EntityKind.CLIENT_QUOTA}
    reader.close()
    store.close()


def test_a_reader_that_missed_many_changes_gets_all_entities_of_a_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (entity_store, metadata_reader):
        monkeypatch.setattr(module, "RECORDED_CHANGES", 3)
    path = metadata_path(tmp_path)
    store, reader = MetadataStore.open(path, ephemeral=True), MetadataReader(path)
    with store.transaction() as transaction:
        transaction.set_entity(EntityKind.CLIENT_QUOTA, "q", {"rate": 0.5})
    known: dict[str, dict[str, str]] = {}
    for number in range(2, 12):
        with store.transaction() as transaction:
            transaction.set_entity(EntityKind.GROUP, f"g{number % 4}", {"x": str(number)} if number % 3 else {})
        for since in range(1, number):
            delta = present(reader.read(since))
            if number - since <= 3:
                assert delta.entities == {}
                assert len(delta.changed_entities[EntityKind.GROUP]) == number - since
            else:
                assert delta.changed_entities == {}
                assert set(delta.entities) == {EntityKind.GROUP}
        known.pop(f"g{number % 4}", None)
        if number % 3:
            known[f"g{number % 4}"] = {"x": str(number)}
        assert present(reader.read(0)).entities[EntityKind.GROUP] == known
    reader.close()
    store.close()


@pytest.mark.parametrize("seed", [random.randrange(2**32)])
def test_a_cache_that_takes_over_changes_knows_what_one_that_reads_everything_does(tmp_path: Path, seed: int) -> None:
    print("seed", seed)
    generator = random.Random(seed)
    path = metadata_path(tmp_path)
    store = MetadataStore.open(path, ephemeral=True)
    config = load(None, {"log.dirs": str(tmp_path)}, {})
    cache = MetadataCache(path, 2, config)
    for _ in range(60):
        with store.together():
            for _ in range(generator.randrange(1, 4)):
                name = f"n{generator.randrange(5)}"
                kind = generator.choice(list(EntityKind))
                values: dict[str, float | str] = {"rate": generator.randrange(9)}
                if kind is EntityKind.FEATURE:
                    name, values = generator.choice(list(SUPPORTED_FEATURES)), {LEVEL: 1}
                elif kind is EntityKind.CLIENT_QUOTA:
                    name = stored_name((("user", name),))
                with store.transaction() as transaction:
                    transaction.set_entity(kind, name, values if generator.random() < 0.7 else {})
        if generator.random() < 0.5:
            cache.refresh()
    cache.refresh()
    fresh = MetadataCache(path, 2, config)
    fresh.refresh()
    for each in (cache, fresh):
        each.close()
    store.close()
    assert cache.client_quotas == fresh.client_quotas
    assert cache.client_metrics_configs == fresh.client_metrics_configs
    assert cache.finalized_features == fresh.finalized_features
    assert cache.configured_groups() == fresh.configured_groups()
    for group in fresh.configured_groups():
        assert cache.group_configs(group) == fresh.group_configs(group)


def test_values_keep_their_types(tmp_path: Path) -> None:
    path = metadata_path(tmp_path)
    store, reader = MetadataStore.open(path), MetadataReader(path)
    values = {"text": "7", "whole": 7, "half": 7.5, "large": float(2**63)}
    with store.transaction() as transaction:
        transaction.set_entity(EntityKind.FEATURE, "f", values)
    delta = present(reader.read(0))
    assert delta.entities[EntityKind.FEATURE]["f"] == values
    assert {key: type(value) for key, value in delta.entities[EntityKind.FEATURE]["f"].items()} == {
        "text": str,
        "whole": int,
        "half": float,
        "large": float,
    }
    reader.close()
    store.close()


def test_a_file_made_without_them_is_completed(tmp_path: Path) -> None:
    prepare(tmp_path, max_partitions=4)
    with sqlite3.connect(metadata_path(tmp_path)) as connection:
        connection.execute("DROP TABLE entities")
        connection.execute("DROP TABLE entity_changes")
        connection.execute("DROP TABLE entities_changed")
    connection.close()
    reader = MetadataReader(metadata_path(tmp_path))
    assert reader.read(0) is None
    prepare(tmp_path, max_partitions=4)
    store = MetadataStore.open(metadata_path(tmp_path))
    with store.transaction() as transaction:
        transaction.set_entity(EntityKind.GROUP, "a", {"x": "1"})
    assert present(reader.read(0)).entities == {EntityKind.GROUP: {"a": {"x": "1"}}}
    reader.close()
    store.close()


def test_entities_have_a_limit_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deletions make room, updates that only shrink are accepted, and a rejected change leaves nothing."""
    monkeypatch.setattr(entity_store, "MOST_BYTES", 5500)
    path = metadata_path(tmp_path)
    store, reader = MetadataStore.open(path), MetadataReader(path)

    def set_group(name: str, value: str) -> None:
        with store.transaction() as transaction:
            transaction.set_entity(EntityKind.GROUP, name, {"x": value} if value else {})

    for number in range(4):
        set_group(f"g{number}", "v" * 1000)
    with pytest.raises(ApiError, match="delete some first") as rejected:
        set_group("g4", "v" * 1000)
    assert rejected.value.code == ErrorCode.POLICY_VIOLATION
    set_group("g0", "v" * 900)
    set_group("g1", "")
    set_group("g4", "v" * 1000)
    assert sorted(present(reader.read(0)).entities[EntityKind.GROUP]) == ["g0", "g2", "g3", "g4"]
    reader.close()
    store.close()


def test_the_size_is_known_of_a_file_that_does_not_say_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = metadata_path(tmp_path)
    store = MetadataStore.open(path)
    with store.transaction() as transaction:
        transaction.set_entity(EntityKind.GROUP, "large", {"x": "v" * 4000})
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM state WHERE name = 'entity_bytes'")
    connection.close()
    monkeypatch.setattr(entity_store, "MOST_BYTES", 5500)
    store = MetadataStore.open(path)
    with pytest.raises(ApiError), store.transaction() as transaction:
        transaction.set_entity(EntityKind.GROUP, "another", {"x": "v" * 1000})
    store.close()


def remove_and_fail(store: MetadataStore, name: str) -> None:
    """Fail after one of the transactions that are made with one change."""
    with store.together():
        with store.transaction() as transaction:
            transaction.set_entity(EntityKind.GROUP, name, {})
        raise ZeroDivisionError


def test_several_are_replaced_with_one_change_and_one_that_is_rejected_is_undone_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entity_store, "MOST_BYTES", 1200)
    path = metadata_path(tmp_path)
    store = MetadataStore.open(path, ephemeral=True)
    with store.together():
        for name in ("a", "b", "c", "d"):
            rejected = pytest.raises(ApiError) if name == "d" else nullcontext()
            with rejected, store.transaction() as transaction:
                transaction.set_entity(EntityKind.GROUP, name, {"key": "value"})
    assert store.change == 1
    assert sorted(present(MetadataReader(path).read(0)).entities[EntityKind.GROUP]) == ["a", "b", "c"]
    with store.together():
        pass
    assert store.change == 1
    with pytest.raises(ZeroDivisionError):
        remove_and_fail(store, "a")
    assert store.change == 1
    with store.transaction() as transaction:
        transaction.set_entity(EntityKind.GROUP, "a", {})
    assert store.change == 2
    store.close()


def test_the_name_of_a_quotas_entity_as_text() -> None:
    assert entity_text(stored_name((("user", "alice"), ("client-id", None)))) == "user alice, client-id (default)"
    assert entity_text("not JSON") == "not JSON"
