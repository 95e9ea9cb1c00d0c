"""Settings and quotas as acceptor and processors see them: without topics, and at the cost of a comparison."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from rotunda.broker.config.broker_config import load
from rotunda.broker.metadata.configs.live_settings import INTERVAL_NS, RETRY_NS, LiveSettings
from rotunda.broker.metadata.configs.quota_entities import QuotaEntity, stored_name
from rotunda.broker.metadata.store.entity_store import EntityKind
from rotunda.broker.metadata.store.metadata_file import metadata_path
from rotunda.broker.metadata.store.metadata_reader import MetadataReader
from rotunda.broker.metadata.store.metadata_store import MetadataStore
from rotunda.broker.metadata.store.preparation import prepare
from tests.support.fakes import FakeClock

ADDRESS: QuotaEntity = (("ip", "10.0.0.1"),)
ALL_ADDRESSES: QuotaEntity = (("ip", None),)
RATE = "connection_creation_rate"


class Settings:
    """A metadata file with its writer, and a view of it whose clock and announcements are the test's."""

    def __init__(self, directory: Path) -> None:
        prepare(directory, 100)
        self.store = MetadataStore.open(metadata_path(directory))
        self.clock = FakeClock()
        self.config = load(None, {"max.connections": "50"}, {})
        self.view = self.make(directory)

    def make(self, directory: Path) -> LiveSettings:
        return LiveSettings(metadata_path(directory), self.config, lambda: self.store.change, self.clock.monotonic_ns)

    def set(self, broker: str, **configs: int) -> None:
        with self.store.transaction() as transaction:
            names = {name.replace("_", "."): str(value) for name, value in configs.items()}
            transaction.set_broker_configs(broker, names)

    def set_quota(self, entity: QuotaEntity, quotas: Mapping[str, float]) -> None:
        with self.store.transaction() as transaction:
            transaction.set_entity(EntityKind.CLIENT_QUOTA, stored_name(entity), quotas)

    def refresh(self) -> bool:
        self.clock.advance_ns(INTERVAL_NS)
        return self.view.refresh()


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    made = Settings(tmp_path)
    yield made
    made.store.close()


def test_a26_what_is_set_is_in_force_after_a_refresh(settings: Settings, tmp_path: Path) -> None:
    """A broker's own before that of all brokers, before the loaded ones."""
    assert settings.view.broker_config.max_connections == 50
    assert not settings.refresh()
    settings.set("", max_connections=40)
    assert settings.refresh()
    assert settings.view.broker_config.max_connections == 40
    settings.set("1", max_connections=30)
    assert settings.refresh()
    assert settings.view.broker_config.max_connections == 30
    # A process that starts later has it from the beginning.
    assert settings.make(tmp_path).broker_config.max_connections == 30
    settings.set("", max_connections=20)
    settings.set("1")
    assert settings.refresh()
    assert settings.view.broker_config.max_connections == 20


def test_what_is_asked_for_at_once_is_there_and_is_not_kept_from_who_asks_next(settings: Settings) -> None:
    """A new connection requests it so, and the loop, which puts quotas in force, requests it later."""
    settings.set("", max_connections=40)
    assert settings.refresh()
    settings.set("", max_connections=41)
    assert settings.view.refresh(at_once=True)
    assert settings.view.broker_config.max_connections == 41
    assert not settings.view.refresh(at_once=True)
    assert settings.view.refresh()
    assert not settings.refresh()


def test_a12_quotas_come_change_and_go(settings: Settings, tmp_path: Path) -> None:
    settings.set_quota(ADDRESS, {RATE: 5.0})
    settings.set_quota(ALL_ADDRESSES, {RATE: 7.0})
    assert settings.refresh()
    assert settings.view.client_quotas == {ADDRESS: {RATE: 5.0}, ALL_ADDRESSES: {RATE: 7.0}}
    settings.set_quota(ADDRESS, {})
    settings.set_quota(ALL_ADDRESSES, {RATE: 8.0})
    assert settings.refresh()
    assert settings.view.client_quotas == {ALL_ADDRESSES: {RATE: 8.0}}
    assert settings.make(tmp_path).client_quotas == {ALL_ADDRESSES: {RATE: 8.0}}


def test_a_topic_is_no_news_and_costs_at_most_ten_reads_a_second(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The word that is announced moves with every topic."""
    reads = []
    read = MetadataReader.read

    def counted(reader: MetadataReader, since: int, *, with_topics: bool = True) -> object:
        assert not with_topics
        reads.append(since)
        return read(reader, since, with_topics=with_topics)

    monkeypatch.setattr(MetadataReader, "read", counted)
    for number in range(300):
        with settings.store.transaction() as transaction:
            transaction.insert_topic(number.to_bytes(16, "big"), f"t{number}", [number], {})
        settings.clock.advance_ns(INTERVAL_NS // 10)
        assert not settings.view.refresh()
    assert 28 <= len(reads) <= 30
    settings.refresh()
    before = len(reads)
    for _ in range(10):
        assert not settings.refresh()
    assert len(reads) == before


def test_a_file_that_cannot_be_read_leaves_what_was_in_force(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_reader: MetadataReader, _since: int, *, with_topics: bool = True) -> None:
        raise sqlite3.OperationalError(f"disk I/O error {with_topics}")

    settings.set("", max_connections=40)
    with monkeypatch.context() as broken:
        broken.setattr(MetadataReader, "read", fail)
        assert not settings.refresh()
        assert not settings.refresh()
    assert "disk I/O error" in caplog.text
    assert len(caplog.records) == 1
    assert settings.view.broker_config.max_connections == 50
    settings.clock.advance_ns(RETRY_NS)
    assert settings.refresh()
    assert settings.view.broker_config.max_connections == 40
