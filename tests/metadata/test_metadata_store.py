"""The metadata file: whole changes or nothing, for any reader, and whenever the writer dies."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rotunda.broker.errors import ApiError, BootFailed
from rotunda.broker.metadata.store import request_dedup
from rotunda.broker.metadata.store.metadata_file import metadata_path
from rotunda.broker.metadata.store.metadata_reader import MetadataReader
from rotunda.broker.metadata.store.metadata_store import MetadataStore
from rotunda.broker.metadata.store.preparation import prepare
from rotunda.broker.metadata.store.request_dedup import MOST_REQUESTS, TopicOutcome
from rotunda.broker.protocol.error_codes import ErrorCode
from tests.support.fakes import failing
from tests.support.results import present

KAFKA_STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR
PARTITIONS = 5

#: Creates topics for ever, each with a note before its commit and one after it.
WRITER = """
import sys
from pathlib import Path
from rotunda.broker.metadata.store.metadata_store import MetadataStore

store = MetadataStore.open(Path(sys.argv[1]))
number = store.change
while True:
    with store.transaction() as transaction:
        rows = range(number * 5, number * 5 + 5)
        transaction.insert_topic(number.to_bytes(16, "big"), f"topic-{number}", list(rows), {"retention.ms": "1"})
        print("inserted", number, flush=True)
    print("committed", number, flush=True)
    number += 1
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return metadata_path(tmp_path)


def insert(store: MetadataStore, name: str, rows: list[int]) -> bytes:
    topic_id = name.encode().rjust(16, b"\0")
    with store.transaction() as transaction:
        transaction.insert_topic(topic_id, name, rows, {})
    return topic_id


def spawn_writer(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)


def kill(writer: subprocess.Popen[str]) -> None:
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    assert writer.stdout is not None
    writer.stdout.close()


def test_what_is_committed_survives_a_reopening(path: Path) -> None:
    store = MetadataStore.open(path)
    topic_id = insert(store, "kept", [3, 4])
    with store.transaction() as transaction:
        transaction.set_topic_configs(topic_id, "orders", {"cleanup.policy": "compact"})
        transaction.set_broker_configs("1", {"log.retention.ms": "5"})
    store.close()
    delta = present(MetadataReader(path).read(0))
    [topic] = delta.topics
    assert topic == (topic_id, "kept", False, {"cleanup.policy": "compact"}, ((0, 3), (1, 4)))
    assert delta.broker_configs == {"1": {"log.retention.ms": "5"}}
    assert delta.version == 2


def test_a_reader_gets_only_the_changes(path: Path) -> None:
    store, reader = MetadataStore.open(path), MetadataReader(path)
    assert reader.read(0) is None
    insert(store, "first", [0])
    second_id = insert(store, "second", [1])
    delta = present(reader.read(1))
    assert [topic.name for topic in delta.topics] == ["second"]
    assert not delta.complete
    with store.transaction() as transaction:
        transaction.add_partitions(second_id, 1, [2, 3])
    assert present(reader.read(2)).topics[0].rows == ((0, 1), (1, 2), (2, 3))
    assert reader.read(3) is None
    reader.close()
    store.close()


def test_a_reader_that_missed_a_dropped_tombstone_gets_everything(path: Path) -> None:
    store, reader = MetadataStore.open(path), MetadataReader(path)
    insert(store, "kept", [0])
    gone_id = insert(store, "gone", [1])
    with store.transaction() as transaction:
        transaction.delete_topic(gone_id)
    delta = present(reader.read(2))
    assert [(topic.name, topic.deleted, topic.rows) for topic in delta.topics] == [("gone", True, ((0, 1),))]
    with store.transaction() as transaction:
        transaction.release_rows([1])
    stale, current = reader.read(2), reader.read(3)
    assert stale is not None
    assert current is not None
    assert (stale.complete, [topic.name for topic in stale.topics]) == (True, ["kept"])
    assert (current.complete, current.topics) == (False, [])
    reader.close()
    store.close()


def test_a_missing_file_and_a_file_without_tables_read_as_empty(path: Path) -> None:
    reader = MetadataReader(path)
    assert reader.read(0) is None
    sqlite3.connect(path).close()
    path.touch()
    assert reader.read(0) is None
    store = MetadataStore.open(path)
    insert(store, "now", [0])
    assert present(reader.read(0)).version == 1
    reader.close()
    store.close()


def test_two_live_topics_cannot_have_one_name(path: Path) -> None:
    store = MetadataStore.open(path)
    insert(store, "name", [0])
    with pytest.raises(sqlite3.IntegrityError), store.transaction() as transaction:
        transaction.insert_topic(b"another id......", "name", [1], {})
    assert store.change == 1
    assert store.assigned_rows() == [(0, False)]
    store.close()


def test_an_exception_in_a_change_undoes_all_of_it(path: Path) -> None:
    store = MetadataStore.open(path)
    with pytest.raises(sqlite3.IntegrityError), store.transaction() as transaction:
        transaction.insert_topic(bytes(16), "half", [0, 0], {})
    assert store.change == 0
    assert MetadataReader(path).read(0) is None
    insert(store, "whole", [0])
    store.close()


def test_a_writer_killed_inside_a_transaction_holds_up_nobody(path: Path) -> None:
    store = MetadataStore.open(path)
    insert(store, "before", [0])
    script = (
        "import sys; from pathlib import Path; from rotunda.broker.metadata.store.metadata_store import MetadataStore\n"
        "with MetadataStore.open(Path(sys.argv[1])).transaction() as t:\n"
        "    t.insert_topic(bytes(16), 'half', [7, 8], {}); print('inside', flush=True); sys.stdin.read()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "inside\n"
        reader = MetadataReader(path)
        delta = present(reader.read(0))
        assert [topic.name for topic in delta.topics] == ["before"]
        os.kill(child.pid, signal.SIGKILL)
    insert(store, "after", [1])
    delta = present(reader.read(0))
    assert [topic.name for topic in delta.topics] == ["before", "after"]
    assert store.assigned_rows() == [(0, False), (1, False)]
    reader.close()
    store.close()


def test_random_kills_lose_no_committed_topic(path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    committed = -1
    MetadataStore.open(path).close()
    for _ in range(5):
        stop_after = committed + chance.randrange(1, 12)
        reader, seen = MetadataReader(path), 0
        writer = spawn_writer(path)
        assert writer.stdout is not None
        for line in writer.stdout:
            word, number = line.split()
            delta = reader.read(seen)
            if delta is not None:
                assert all(len(topic.rows) == PARTITIONS for topic in delta.topics)
                assert len(delta.topics) == delta.version - seen
                seen = delta.version
            if word == "committed":
                committed = int(number)
                assert seen >= committed
                if committed >= stop_after:
                    break
        kill(writer)
        reader.close()
    final = present(MetadataReader(path).read(0))
    assert final.version == len(final.topics) > committed


def test_a_full_disk_is_a_response_and_changes_nothing(path: Path) -> None:
    store = MetadataStore.open(path)
    insert(store, "before", [0])
    store._connection.execute("PRAGMA max_page_count = 1")
    with pytest.raises(ApiError) as rejected:
        insert(store, "filler" * 10_000, [1])
    assert rejected.value.code == KAFKA_STORAGE_ERROR
    store._connection.execute("PRAGMA max_page_count = 1000000")
    change = store.change
    insert(store, "after", [20_000])
    assert store.change == change + 1
    store.close()


def test_producer_ids_are_never_reserved_twice(path: Path) -> None:
    store = MetadataStore.open(path)
    first = store.reserve_producer_ids(1000)
    store.close()
    store = MetadataStore.open(path)
    assert store.reserve_producer_ids(1000) == first + 1000
    assert store.change == 0
    store.close()


def test_preparing_moves_partitions_into_a_table_that_became_smaller(path: Path) -> None:
    store = MetadataStore.open(path)
    insert(store, "low", [2])
    insert(store, "high", [90, 70])
    store.close()
    prepare(path.parent, 3)
    store = MetadataStore.open(path)
    assert [row for row, _ in store.assigned_rows()] == [0, 1, 2]
    store.close()
    delta = present(MetadataReader(path).read(0))
    assert {topic.name: topic.rows for topic in delta.topics} == {"low": ((0, 0),), "high": ((0, 2), (1, 1))}
    with pytest.raises(BootFailed, match=r"3 partitions.*max\.partitions"):
        prepare(path.parent, 2)


# ---- responses to changes --------------------------------------------------------------------------------------------


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
    monkeypatch.setattr(request_dedup, "forget_all", failing(sqlite3.OperationalError("database or disk is full")))
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
