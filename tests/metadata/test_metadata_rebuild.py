"""A lost or damaged metadata file: the start fails with the remedy, and rebuilds it on request."""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from rotunda.broker.config.broker_config import BrokerConfig, load
from rotunda.broker.errors import BootFailed
from rotunda.broker.log.partition_metadata import write_topic_id
from rotunda.broker.metadata.rebuild import check_or_rebuild
from rotunda.broker.metadata.store.metadata_file import metadata_path
from rotunda.broker.metadata.store.metadata_reader import MetadataReader
from rotunda.broker.metadata.store.metadata_store import MetadataStore
from tests.support.fakes import failing
from tests.support.results import present

IDS = {"orders": bytes(range(16)), "users": bytes(range(16, 32))}
NOW_MS = 1_800_000_000_000


def config_of(data_dir: Path, **sets: str) -> BrokerConfig:
    return load(None, {"log.dirs": str(data_dir), **sets}, {})


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Return a data directory with two topics, one of which has a partition without a directory."""
    store = MetadataStore.open(metadata_path(tmp_path))
    with store.transaction() as transaction:
        transaction.insert_topic(IDS["orders"], "orders", [0, 1, 2], {"retention.ms": "1000"})
        transaction.insert_topic(IDS["users"], "users", [3], {})
    store.close()
    for name in ("orders-0", "orders-2", "users-0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "00000000000000000000.log").write_bytes(b"records")
        write_topic_id(tmp_path / name, IDS[name.split("-")[0]])
    return tmp_path


def rename_topic(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE topics SET name = 'orderz' WHERE name = 'orders'")
    connection.close()


def break_settings(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE topics SET configs = '{\"retention' WHERE name = 'orders'")
    connection.close()


def replace_by_a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "emptied": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(b"\xff\x00garbage" * 1000),
    "a bad byte in its header": lambda path: path.write_bytes(b"Z" + path.read_bytes()[1:]),
    "a bad byte in its root page": lambda path: path.write_bytes(
        path.read_bytes()[:100] + b"\xf2" + path.read_bytes()[101:]
    ),
    "a wrong count of free pages, which no read meets": lambda path: path.write_bytes(
        path.read_bytes()[:36] + b"\0\0\0\5" + path.read_bytes()[40:]
    ),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:5000]),
    "a directory": replace_by_a_directory,
    "a bad byte in a name": rename_topic,
    "a bad byte in settings": break_settings,
}


def test_a_sound_file_and_a_new_directory_are_left_alone(data_dir: Path, tmp_path: Path) -> None:
    before = metadata_path(data_dir).read_bytes()
    check_or_rebuild(config_of(data_dir), NOW_MS)
    assert metadata_path(data_dir).read_bytes() == before
    (tmp_path / "new").mkdir()
    check_or_rebuild(config_of(tmp_path / "new"), NOW_MS)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_lost_or_damaged_file_is_rejected_and_made_again_on_request(data_dir: Path, damage: str) -> None:
    path = metadata_path(data_dir)
    DAMAGES[damage](path)
    with pytest.raises(BootFailed) as rejected:
        check_or_rebuild(config_of(data_dir), NOW_MS)
    assert str(path) in rejected.value.reason
    assert "metadata.rebuild=true" in rejected.value.reason
    assert "orders-0" in rejected.value.reason
    check_or_rebuild(config_of(data_dir, **{"metadata.rebuild": "true"}), NOW_MS)
    delta = present(MetadataReader(path).read(0))
    assert {each.name: (each.topic_id, len(each.rows)) for each in delta.topics} == {
        "orders": (IDS["orders"], 3),
        "users": (IDS["users"], 1),
    }
    assert all(each.configs["retention.ms"] == "-1" for each in delta.topics), "nothing expires unasked"
    store = MetadataStore.open(path)
    assert store.reserve_producer_ids(1) >= NOW_MS
    store.close()
    check_or_rebuild(config_of(data_dir), NOW_MS)


def test_topics_that_an_old_copy_does_not_know_are_named_and_added_on_request(
    data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = metadata_path(data_dir)
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM partitions WHERE topic_id = ?", (IDS["orders"],))
        connection.execute("DELETE FROM topics WHERE name = 'orders'")
    connection.close()
    check_or_rebuild(config_of(data_dir), NOW_MS)
    assert "2 partition directories (orders-0, orders-2)" in caplog.text
    assert "metadata.rebuild=true" in caplog.text
    check_or_rebuild(config_of(data_dir, **{"metadata.rebuild": "true"}), NOW_MS)
    delta = present(MetadataReader(path).read(0))
    topics = {each.name: (each.topic_id, dict(each.rows)) for each in delta.topics}
    assert topics == {"orders": (IDS["orders"], {0: 4, 1: 5, 2: 6}), "users": (IDS["users"], {0: 3})}
    caplog.clear()
    check_or_rebuild(config_of(data_dir), NOW_MS)
    assert not caplog.text


#: As Kafka names them: the log of its controllers, and partitions that it removes, moves or has no replica of.
KAFKA_DIRECTORIES = (
    "__cluster_metadata-0",
    "orders-7.0123456789abcdef0123456789abcdef-delete",
    "orders-8.0123456789abcdef0123456789abcdef-future",
    "orders-9.0123456789abcdef0123456789abcdef-stray",
)


@pytest.mark.parametrize("is_lost", [True, False])
def test_directories_that_kafka_keeps_for_itself_become_no_topics(
    data_dir: Path, is_lost: bool, caplog: pytest.LogCaptureFixture
) -> None:
    for name in KAFKA_DIRECTORIES:
        (data_dir / name).mkdir()
        (data_dir / name / "00000000000000000000.log").write_bytes(b"records")
    path = metadata_path(data_dir)
    if is_lost:
        path.unlink()
    check_or_rebuild(config_of(data_dir, **{"metadata.rebuild": "true"}), NOW_MS)
    delta = present(MetadataReader(path).read(0))
    assert {each.name: len(each.rows) for each in delta.topics} == {"orders": 3, "users": 1}
    assert "__cluster_metadata" not in caplog.text
    assert all((data_dir / name / "00000000000000000000.log").exists() for name in KAFKA_DIRECTORIES)


def test_a_new_file_next_to_the_log_of_kafkas_controllers_is_no_loss(tmp_path: Path) -> None:
    (tmp_path / "__cluster_metadata-0").mkdir()
    (tmp_path / "__cluster_metadata-0" / "00000000000000000000.log").write_bytes(b"records")
    check_or_rebuild(config_of(tmp_path), NOW_MS)


def test_a_file_of_a_newer_version_is_not_taken_for_damage(data_dir: Path) -> None:
    path = metadata_path(data_dir)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE state SET value = 99 WHERE name = 'format'")
        connection.execute("DROP TABLE partitions")
    connection.close()
    check_or_rebuild(config_of(data_dir, **{"metadata.rebuild": "true"}), NOW_MS)
    with pytest.raises(BootFailed) as rejected:
        MetadataStore.open(path)
    assert rejected.value.exit_code == 5


def test_a_file_that_cannot_be_read_now_is_not_taken_for_damage(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    monkeypatch.setattr(sqlite3, "connect", failing(error))
    with pytest.raises(BootFailed) as rejected:
        check_or_rebuild(config_of(data_dir, **{"metadata.rebuild": "true"}), NOW_MS)
    assert "damaged" not in rejected.value.reason
    assert "disk is full" in rejected.value.reason
    assert not list(data_dir.glob("*damaged*"))


def damage_wal(path: Path, suffix: str, content: bytes | None) -> None:
    beside = path.with_name(path.name + suffix)
    beside.unlink() if content is None else beside.write_bytes(content)


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
@pytest.mark.parametrize("content", [None, b"", b"\xff\x00garbage" * 1000], ids=["missing", "emptied", "garbage"])
def test_a_write_ahead_log_that_is_lost_or_damaged_leaves_no_broker_without_topics(
    data_dir: Path, tmp_path: Path, suffix: str, content: bytes | None
) -> None:
    """As after SIGKILL: nothing has been folded into the file."""
    path = metadata_path(data_dir)
    path.unlink()
    store = MetadataStore.open(path)
    with store.transaction() as transaction:
        transaction.insert_topic(IDS["orders"], "orders", [0, 1, 2], {})
        transaction.insert_topic(IDS["users"], "users", [3], {})
    crashed = tmp_path / "crashed"
    shutil.copytree(data_dir, crashed, ignore=shutil.ignore_patterns("crashed"))
    store.close()
    damage_wal(metadata_path(crashed), suffix, content)
    if suffix == "-wal":
        with pytest.raises(BootFailed) as rejected:
            check_or_rebuild(config_of(crashed), NOW_MS)
        assert str(metadata_path(crashed)) in rejected.value.reason
        check_or_rebuild(config_of(crashed, **{"metadata.rebuild": "true"}), NOW_MS)
    check_or_rebuild(config_of(crashed), NOW_MS)
    delta = present(MetadataReader(metadata_path(crashed)).read(0))
    assert {each.name for each in delta.topics} == set(IDS)
