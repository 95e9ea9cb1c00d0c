"""The response to a change is stored with it, for the last requests, until the broker starts again."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from rotunda.broker.errors import BootFailed
from rotunda.broker.metadata.store import request_dedup
from rotunda.broker.metadata.store.metadata_file import metadata_path
from rotunda.broker.metadata.store.metadata_store import MetadataStore
from rotunda.broker.metadata.store.preparation import prepare
from rotunda.broker.metadata.store.request_dedup import MOST_REQUESTS, TopicOutcome

OUTCOMES = [
    TopicOutcome("made", 0, None, bytes(range(16)), 3, {"retention.ms": "5"}),
    TopicOutcome("refused", 36, "Topic 'refused' already exists."),
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MetadataStore]:
    opened = MetadataStore.open(metadata_path(tmp_path), ephemeral=True)
    yield opened
    opened.close()


def keep(store: MetadataStore, request: str) -> None:
    with store.transaction() as transaction:
        transaction.keep_outcomes(request, OUTCOMES)


def test_outcomes_come_back_as_they_were(store: MetadataStore) -> None:
    keep(store, "one")
    with store.transaction() as transaction:
        transaction.keep_outcomes("nothing to report", [])
    assert store.outcomes_of("one") == OUTCOMES
    assert store.outcomes_of("nothing to report") == []
    assert store.outcomes_of("another") is None


def test_a_change_that_is_not_made_leaves_no_outcomes(store: MetadataStore) -> None:
    def fail() -> None:
        with store.transaction() as transaction:
            transaction.keep_outcomes("one", OUTCOMES)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert store.outcomes_of("one") is None
    keep(store, "one")
    assert store.outcomes_of("one") == OUTCOMES


def test_the_oldest_requests_are_forgotten_whatever_else_changes(store: MetadataStore) -> None:
    for number in range(MOST_REQUESTS + 3):
        keep(store, f"request {number}")
        with store.transaction():
            pass
    kept = [store.outcomes_of(f"request {number}") is not None for number in range(MOST_REQUESTS + 3)]
    assert kept == [False] * 3 + [True] * MOST_REQUESTS


def test_outcomes_outlive_the_controller_and_not_the_broker(tmp_path: Path) -> None:
    """A replacement opens the file; a start prepares it first."""
    prepare(tmp_path, max_partitions=4)
    store = MetadataStore.open(metadata_path(tmp_path))
    keep(store, "one")
    store.close()
    store = MetadataStore.open(metadata_path(tmp_path))
    assert store.outcomes_of("one") == OUTCOMES
    store.close()
    prepare(tmp_path, max_partitions=4)
    store = MetadataStore.open(metadata_path(tmp_path))
    assert store.outcomes_of("one") is None
    assert store.change == 1
    store.close()


def test_a_start_is_rejected_when_the_record_cannot_be_emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path, max_partitions=4)
    store = MetadataStore.open(metadata_path(tmp_path))
    keep(store, "one")
    store.close()

    def full(_: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(request_dedup, "forget_all", full)
    with pytest.raises(BootFailed, match="database or disk is full"):
        prepare(tmp_path, max_partitions=4)


def test_a_file_made_without_the_record_is_completed(tmp_path: Path) -> None:
    prepare(tmp_path, max_partitions=4)
    with sqlite3.connect(metadata_path(tmp_path)) as connection:
        connection.execute("DROP TABLE kept_outcomes")
    connection.close()
    store = MetadataStore.open(metadata_path(tmp_path))
    assert store.outcomes_of("one") is None
    keep(store, "one")
    assert store.outcomes_of("one") == OUTCOMES
    store.close()
