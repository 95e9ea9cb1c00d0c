"""The recorder's memory with ever new clients, and topics that are created and deleted."""

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from rotunda.broker.request_log import names, recent
from rotunda.broker.request_log.names import Subjects
from rotunda.shm.rings.recorder_rings import pack_text
from rotunda.shm.tables.recent_requests import BYTES_NEEDED, SLOWEST_ROWS, RecentWriter
from tests.support.recorder_bench import RecorderBench, rows_of
from tests.support.results import present

BATCH = 500


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RecorderBench]:
    """Yield a recorder that publishes, and remembers little."""
    monkeypatch.setattr(names, "MOST_NAMES_BYTES", 1024 * 1024)
    made = RecorderBench(tmp_path)
    made.recorder.publish_recent(RecentWriter(memoryview(bytearray(BYTES_NEEDED))))
    yield made
    made.recorder.finish()


def push_strangers(bench: RecorderBench, first: int, count: int) -> None:
    """Push a request of each of `count` new clients."""
    for start in range(first, first + count, BATCH):
        bench.texts.clear()
        numbers = range(start, start + BATCH)
        for number in numbers:
            told = [number, f"client-{number}-{'x' * 200}", f"lib-{number}", "1.0", "127.0.0.1", "P", "P", "User:A"]
            bench.texts[number] = pack_text(number, json.dumps(told).encode())
        rows = rows_of(bench.clock, BATCH, client=list(numbers), api_version=[each % 500 for each in numbers])
        bench.push(rows)
        bench.run_once(after_ms=1)


def test_memory_is_flat_over_tens_of_thousands_of_names(bench: RecorderBench):
    """Written names are forgotten, and every row has its client's name all the same."""
    push_strangers(bench, 0, 5000)
    tracemalloc.start()
    try:
        push_strangers(bench, 5000, 5000)
        before_bytes, _ = tracemalloc.get_traced_memory()
        push_strangers(bench, 10_000, 20_000)
        after_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # It rises to the limit and falls again; its present value is random.
    assert after_bytes - before_bytes < 3 * names.MOST_NAMES_BYTES
    bench.recorder.finish()
    rows = bench.read("requests")
    assert len(rows) == 30_000
    assert all(row["softwareName"] == f"lib-{row['clientId'].split('-')[1]}" for row in rows)


def test_nothing_is_taken_while_names_are_too_many_and_cannot_be_written(bench: RecorderBench):
    """Until Arrow is loaded rows wait in the rings, which accept fewer and count the rest."""
    bench.recorder.is_prepared = False
    push_strangers(bench, 0, 10_000)
    assert bench.recorder._clients._size_bytes < 3 * names.MOST_NAMES_BYTES
    bench.recorder.finish()
    rows, account = bench.read("requests"), bench.rings.account(0)
    assert len(rows) == account.get("rows_pushed") == account.get("rows_settled")
    assert len(rows) + account.get("rows_skipped") + account.get("rows_dropped") == 10_000
    assert all(row["clientId"] for row in rows)


def test_connections_that_nobody_closes_are_bounded(bench: RecorderBench):
    push_strangers(bench, 0, 4 * recent.MOST_CONNECTIONS // BATCH * BATCH)
    kept = present(bench.recorder._recent)
    assert len(kept._connections) <= recent.MOST_CONNECTIONS
    assert len(kept._by_client) <= 3 * recent.MOST_CONNECTIONS


def test_the_versions_that_a_client_makes_up_are_bounded(bench: RecorderBench):
    for number in range(0, 4000, BATCH):
        bench.push(rows_of(bench.clock, BATCH, api_version=[number + each for each in range(BATCH)]))
        bench.run_once(after_ms=1)
    kept = present(bench.recorder._recent)
    [connection] = kept._connections.values()
    assert len(connection.calls) <= recent.MOST_CALLS


def test_topics_that_are_gone_are_forgotten(bench: RecorderBench, monkeypatch: pytest.MonkeyPatch):
    """The number of a deleted topic is reused later, when no row has it any more."""
    monkeypatch.setattr(names, "MOST_ENDED_SUBJECTS", 50)
    for number in range(500):
        bench.topics.clear()
        bench.topics[f"topic-{number}"] = number % 7
        bench.recorder._subjects.refresh()
        bench.push(rows_of(bench.clock, 1, partition_row=number % 7))
        bench.run_once(after_ms=1)
    subjects = bench.recorder._subjects
    # The newest thousand rows are cached for the live view, and so are their topics' names.
    assert len(subjects._known) <= 600
    for _ in range(3):
        bench.push(rows_of(bench.clock, 500, partition_row=-1))
        bench.run_once(after_ms=1)
    bench.recorder.finish()
    # Left are those of the hundred slowest rows, of the last eight that the client named, and of the one that is there.
    assert len(subjects._known) <= SLOWEST_ROWS + recent.MOST_TOPICS + 1
    topics = [row["topic"] for row in bench.read("requests") if row["topic"]]
    assert sorted(topics) == sorted(f"topic-{number}" for number in range(500))


def test_a_number_is_used_again_only_when_it_is_free(bench: RecorderBench):
    subjects = Subjects(bench.recorder._metadata)
    bench.topics.clear()
    bench.topics.update({"kept": 0, "gone": 1})
    subjects.refresh()
    kept, gone = (subjects._known[name, 0] for name in ("kept", "gone"))
    bench.topics.clear()
    bench.topics["new"] = 2
    subjects.refresh()
    subjects.forget({kept})
    assert subjects.name(kept) == ("kept", 0)
    assert subjects.name(gone) == (None, -1)
    bench.topics["newer"] = 3
    subjects.refresh()
    assert subjects.name(gone) == ("newer", 0)
