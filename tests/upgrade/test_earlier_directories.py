"""Data directories that earlier commits wrote, one for each schema of the metadata file, opened as they are."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rotunda.broker.config.broker_config import BrokerConfig
from rotunda.broker.metadata.features import LEVEL
from rotunda.broker.metadata.metadata_cache import MetadataCache
from rotunda.broker.metadata.store.entity_store import EntityKind
from rotunda.broker.metadata.store.metadata_file import metadata_path
from rotunda.broker.metadata.store.metadata_store import MetadataStore
from rotunda.broker.metadata.store.preparation import prepare
from tests.support.broker_process import BrokerProcess
from tests.upgrade.content import DIRECTORIES, SETTINGS, assert_is_served, write_more

NAMES = sorted(path.stem for path in DIRECTORIES.glob("*.zip"))


def unpacked(name: str, directory: Path) -> dict[str, Any]:
    """Unpack a data directory to `directory`/data and return its contents."""
    shutil.unpack_archive(DIRECTORIES / f"{name}.zip", directory)
    content: dict[str, Any] = json.loads((directory / "content.json").read_text())
    return content


def schema(path: Path) -> set[tuple[str, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL"
        return set(connection.execute(query).fetchall())


@pytest.mark.parametrize("name", NAMES)
def test_a_directory_of_an_earlier_commit_is_served_as_it_was(name: str, broker_directory: Path) -> None:
    content = unpacked(name, broker_directory)
    broker = BrokerProcess(broker_directory, SETTINGS, ephemeral=False).start()
    try:
        assert_is_served(broker, content)
        write_more(broker.bootstrap, "more")
    finally:
        broker.stop()


def test_each_schema_of_the_metadata_file_has_a_directory(tmp_path: Path) -> None:
    """A commit that changes the schema adds a directory that it wrote itself: see `make_directory`."""
    new = metadata_path(tmp_path)
    MetadataStore.open(new).close()
    known = {}
    for name in NAMES:
        unpacked(name, tmp_path / name)
        known[name] = schema(metadata_path(tmp_path / name / "data"))
    assert schema(new) in known.values(), "the schema has changed: add a data directory with it, see make_directory"
    assert len(NAMES) == len({frozenset(each) for each in known.values()}), "two directories have the same schema"


@pytest.mark.parametrize("name", NAMES)
def test_s08_an_earlier_directory_keeps_its_levels_until_they_are_raised(name: str, tmp_path: Path) -> None:
    unpacked(name, tmp_path)
    levels = levels_in(tmp_path / "data")
    assert (levels["metadata.version"], levels["share.version"]) == (30, 0)
    with closing(MetadataStore.open(metadata_path(tmp_path / "data"))) as store, store.transaction() as transaction:
        transaction.set_entity(EntityKind.FEATURE, "share.version", {LEVEL: 1})
    assert levels_in(tmp_path / "data") == {**levels, "share.version": 1}


def test_s08_a_new_directory_has_the_levels_of_this_version(tmp_path: Path) -> None:
    for _ in range(2):
        levels = levels_in(tmp_path)
        assert (levels["metadata.version"], levels["share.version"]) == (33, 2)
    with closing(MetadataStore.open(metadata_path(tmp_path))) as store, store.transaction():
        """Any change."""
    assert levels_in(tmp_path) == levels


def levels_in(directory: Path) -> dict[str, int]:
    """Return the levels of features after a start with a data directory."""
    prepare(directory, max_partitions=100)
    with closing(MetadataCache(metadata_path(directory), 1, BrokerConfig())) as metadata:
        metadata.refresh()
        return dict(metadata.finalized_features)
