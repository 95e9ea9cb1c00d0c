"""The metadata file: whole changes or nothing, for any reader, and whenever the writer dies."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from rotunda.broker.errors import ApiError, BootFailed
from rotunda.broker.metadata.store.metadata_file import FORMAT, metadata_path
from rotunda.broker.metadata.store.metadata_reader import MetadataReader
from rotunda.broker.metadata.store.metadata_store import MetadataStore
from rotunda.broker.metadata.store.preparation import prepare
from rotunda.broker.protocol.error_codes import ErrorCode

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
    delta = MetadataReader(path).read(0)
    assert delta is not None
    [topic] = delta.topics
    assert topic == (topic_id, "kept", False, {"cleanup.policy": "compact"}, ((0, 3), (1, 4)))
    assert delta.broker_configs == {"1": {"log.retention.ms": "5"}}
    assert delta.version == 2


def test_a_reader_gets_only_the_changes(path: Path) -> None:
    store, reader = MetadataStore.open(path), MetadataReader(path)
    assert reader.read(0) is None
    insert(store, "first", [0])
    second_id = insert(store, "second", [1])
    delta = reader.read(1)
    assert delta is not None
    assert [topic.name for topic in delta.topics] == ["second"]
    assert not delta.complete
    with store.transaction() as transaction:
        transaction.add_partitions(second_id, 1, [2, 3])
    delta = reader.read(2)
    assert delta is not None
    assert delta.topics[0].rows == ((0, 1), (1, 2), (2, 3))
    assert reader.read(3) is None
    reader.close()
    store.close()


def test_a_reader_that_missed_a_dropped_tombstone_gets_everything(path: Path) -> None:
    store, reader = MetadataStore.open(path), MetadataReader(path)
    insert(store, "kept", [0])
    gone_id = insert(store, "gone", [1])
    with store.transaction() as transaction:
        transaction.delete_topic(gone_id)
    delta = reader.read(2)
    assert delta is not None
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
    delta = reader.read(0)
    assert delta is not None
    assert delta.version == 1
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
        delta = reader.read(0)
        assert delta is not None
        assert [topic.name for topic in delta.topics] == ["before"]
        os.kill(child.pid, signal.SIGKILL)
    insert(store, "after", [1])
    delta = reader.read(0)
    assert delta is not None
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
    final = MetadataReader(path).read(0)
    assert final is not None
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


def test_a_file_from_a_newer_version_is_rejected_with_its_own_exit_code(path: Path) -> None:
    MetadataStore.open(path).close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE state SET value = ? WHERE name = 'format'", (FORMAT + 1,))
    connection.commit()
    connection.close()
    with pytest.raises(BootFailed) as rejected:
        MetadataStore.open(path)
    assert rejected.value.exit_code == 5


def test_a_damaged_file_is_rejected_with_its_name(path: Path) -> None:
    path.write_bytes(b"not a database " * 1000)
    with pytest.raises(BootFailed, match=path.name):
        MetadataStore.open(path)


def test_preparing_moves_partitions_into_a_table_that_became_smaller(path: Path) -> None:
    store = MetadataStore.open(path)
    insert(store, "low", [2])
    insert(store, "high", [90, 70])
    store.close()
    prepare(path.parent, 3)
    store = MetadataStore.open(path)
    assert [row for row, _ in store.assigned_rows()] == [0, 1, 2]
    store.close()
    delta = MetadataReader(path).read(0)
    assert delta is not None
    assert {topic.name: topic.rows for topic in delta.topics} == {"low": ((0, 0),), "high": ((0, 2), (1, 1))}
    with pytest.raises(BootFailed, match=r"3 partitions.*max\.partitions"):
        prepare(path.parent, 2)
