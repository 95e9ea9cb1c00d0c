"""Groups' settings, quotas and features in the metadata file: told when they change, in files of any age."""

from __future__ import annotations

import sqlite3
from contextlib import nullcontext
from pathlib import Path

import pytest

from broker import stored_entities
from broker.errors import ApiError
from broker.metadata_file import metadata_path
from broker.metadata_preparation import prepare
from broker.metadata_reader import MetadataReader
from broker.metadata_store import MetadataStore
from broker.protocol.error_codes import ErrorCode
from broker.stored_entities import EntityKind


def test_a_kind_is_told_whole_when_one_of_it_changes(tmp_path: Path) -> None:
    path = metadata_path(tmp_path)
    store, reader = MetadataStore.open(path), MetadataReader(path)
    with store.transaction() as transaction:
        transaction.set_entity(EntityKind.GROUP, "a", {"x": "1"})
        transaction.set_entity(EntityKind.GROUP, "b", {"y": "2", "z": "3"})
    with store.transaction() as transaction:
        transaction.set_entity(EntityKind.CLIENT_QUOTA, "q", {"rate": 0.5})
    delta = reader.read(0)
    assert delta is not None
    assert delta.entities == {
        EntityKind.CLIENT_QUOTA: {"q": {"rate": 0.5}},
        EntityKind.GROUP: {"a": {"x": "1"}, "b": {"y": "2", "z": "3"}},
    }
    delta = reader.read(1)
    assert delta is not None
    assert set(delta.entities) == {EntityKind.CLIENT_QUOTA}
    with store.transaction() as transaction:
        transaction.set_entity(EntityKind.GROUP, "a", {})
        transaction.set_entity(EntityKind.GROUP, "b", {"y": "4"})
    delta = reader.read(2)
    assert delta is not None
    assert delta.entities == {EntityKind.GROUP: {"b": {"y": "4"}}}
    with store.transaction() as transaction:
        transaction.set_entity(EntityKind.GROUP, "b", {})
    delta = reader.read(3)
    assert delta is not None
    assert delta.entities == {EntityKind.GROUP: {}}
    reader.close()
    store.close()


def test_values_keep_their_types(tmp_path: Path) -> None:
    path = metadata_path(tmp_path)
    store, reader = MetadataStore.open(path), MetadataReader(path)
    values = {"text": "7", "whole": 7, "half": 7.5, "large": float(2**63)}
    with store.transaction() as transaction:
        transaction.set_entity(EntityKind.FEATURE, "f", values)
    delta = reader.read(0)
    assert delta is not None
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
    connection.close()
    reader = MetadataReader(metadata_path(tmp_path))
    assert reader.read(0) is None
    prepare(tmp_path, max_partitions=4)
    store = MetadataStore.open(metadata_path(tmp_path))
    with store.transaction() as transaction:
        transaction.set_entity(EntityKind.GROUP, "a", {"x": "1"})
    delta = reader.read(0)
    assert delta is not None
    assert delta.entities == {EntityKind.GROUP: {"a": {"x": "1"}}}
    reader.close()
    store.close()


def test_entities_have_a_limit_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes makes room, what only shrinks is accepted, and a refused change leaves nothing."""
    monkeypatch.setattr(stored_entities, "MOST_BYTES", 5000)
    path = metadata_path(tmp_path)
    store, reader = MetadataStore.open(path), MetadataReader(path)

    def set_group(name: str, value: str) -> None:
        with store.transaction() as transaction:
            transaction.set_entity(EntityKind.GROUP, name, {"x": value} if value else {})

    for number in range(4):
        set_group(f"g{number}", "v" * 1000)
    with pytest.raises(ApiError, match="delete some first") as refused:
        set_group("g4", "v" * 1000)
    assert refused.value.code == ErrorCode.POLICY_VIOLATION
    set_group("g0", "v" * 900)
    set_group("g1", "")
    set_group("g4", "v" * 1000)
    delta = reader.read(0)
    assert delta is not None
    assert sorted(delta.entities[EntityKind.GROUP]) == ["g0", "g2", "g3", "g4"]
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
    monkeypatch.setattr(stored_entities, "MOST_BYTES", 5000)
    store = MetadataStore.open(path)
    with pytest.raises(ApiError), store.transaction() as transaction:
        transaction.set_entity(EntityKind.GROUP, "another", {"x": "v" * 1000})
    store.close()


def remove_and_fail(store: MetadataStore, name: str) -> None:
    """Fail behind one of the transactions that are made with one change."""
    with store.together():
        with store.transaction() as transaction:
            transaction.set_entity(EntityKind.GROUP, name, {})
        raise ZeroDivisionError


def test_several_are_replaced_with_one_change_and_one_that_is_refused_is_undone_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_entities, "MOST_BYTES", 700)
    path = metadata_path(tmp_path)
    store = MetadataStore.open(path, ephemeral=True)
    with store.together():
        for name in ("a", "b", "c", "d"):
            refused = pytest.raises(ApiError) if name == "d" else nullcontext()
            with refused, store.transaction() as transaction:
                transaction.set_entity(EntityKind.GROUP, name, {"key": "value"})
    assert store.change == 1
    delta = MetadataReader(path).read(0)
    assert delta is not None
    assert sorted(delta.entities[EntityKind.GROUP]) == ["a", "b", "c"]
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
