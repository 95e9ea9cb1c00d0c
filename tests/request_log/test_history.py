"""The history: the aggregates of a minute, when they are in a file, and what a killed recorder leaves."""

import os
import random
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from rotunda.broker.ipc.listener_table import ListenerEntry
from rotunda.broker.metadata.store.entity_store import EntityKind
from rotunda.broker.metadata.store.metadata_store import MetadataStore
from rotunda.broker.request_log.columns import DATASETS
from rotunda.broker.request_log.history.hour_files import HourFiles, newest, remove_earlier
from rotunda.broker.request_log.history.largest import MOST_NAMES, OTHERS
from rotunda.broker.request_log.history.minutes import MOST_EVENTS
from rotunda.broker.request_log.part_files import DAMAGED, HOUR_US, apply_retention, hour_path
from rotunda.broker.security.acl.acls import Acl, Operation, PatternType, Permission, ResourceType, stored_name
from rotunda.broker.status.history import HistoryReader
from rotunda.shm.rings.recorder_rings import Retention
from rotunda.shm.storage import StorageReading, StorageState
from rotunda.shm.tables.partitions import STATE_OPEN
from rotunda.shm.tables.process_slots import HANDLER
from tests.support.feeds import random_seed
from tests.support.history_bench import MINUTE_MS, HistoryBench
from tests.support.recorder_bench import CLIENT, WALL_MS, client_text, rows_of
from tests.support.results import present
from tests.support.roles_bench import RING_BYTES

PRODUCE, FETCH = 0, 1
HOUR = WALL_MS * 1000 // HOUR_US


@pytest.fixture
def bench(tmp_path: Path) -> HistoryBench:
    return HistoryBench(tmp_path / "request-log")


def test_a_minute_has_a_row_for_each_api(bench: HistoryBench) -> None:
    bench.finish_requests(PRODUCE, 99, us=1_000)
    bench.finish_requests(PRODUCE, 1, us=50_000, error=3)
    bench.finish_requests(FETCH, 2, us=10)
    bench.run_once()
    bench.run_once(MINUTE_MS)
    fetch, produce = bench.history("api")
    assert set(produce) == {column.name for column in DATASETS["history"].columns}
    assert (produce["name"], fetch["name"]) == ("PRODUCE", "FETCH")
    assert produce["time"].timestamp() * 1000 == WALL_MS
    assert (produce["requests"], produce["errors"], produce["bytesIn"]) == (100, 1, 10_000)
    assert produce["totalP50Us"] == produce["localP99Us"] == pytest.approx(1_000, rel=0.02)
    bench.finish_requests(PRODUCE, 50, us=50_000)
    bench.run_once(MINUTE_MS)
    assert bench.history("api")[-1]["totalP50Us"] == pytest.approx(50_000, rel=0.02)
    assert bench.history("api")[-1]["requests"] == 50


def test_minutes_without_requests_have_no_rows_and_let_the_recorder_rest(bench: HistoryBench) -> None:
    bench.finish_requests(PRODUCE, 1, us=10)
    bench.run_once()
    for _ in range(5):
        bench.run_once(MINUTE_MS)
    assert len(bench.history("api")) == 1
    assert not bench.recorder.is_busy
    bench.finish_requests(PRODUCE, 1, us=10)
    bench.run_once()
    assert bench.recorder.is_busy
    bench.run_once(MINUTE_MS)
    first, second = bench.history("api")
    assert second["time"] - first["time"] == timedelta(minutes=5)


def test_a_killed_recorder_loses_the_present_minute_only(bench: HistoryBench) -> None:
    for _ in range(3):
        bench.finish_requests(PRODUCE, 1, us=10)
        bench.run_once(MINUTE_MS)
    bench.finish_requests(PRODUCE, 5, us=10)
    bench.run_once()
    bench.start_recorder(replaces=True)
    bench.record(is_first=False)
    bench.finish_requests(PRODUCE, 7, us=10)
    bench.run_once(MINUTE_MS)
    assert [row["requests"] for row in bench.history("api")] == [1, 1, 1, 7]
    assert len(list(hour_path(bench.root, "history", HOUR).iterdir())) == 1


def test_a_start_after_a_kill_deletes_earlier_versions_of_an_hour(bench: HistoryBench) -> None:
    bench.finish_requests(PRODUCE, 1, us=10)
    bench.run_once(MINUTE_MS)
    directory = hour_path(bench.root, "history", HOUR)
    first = present(newest(directory))
    content = first.read_bytes()
    bench.finish_requests(PRODUCE, 2, us=10)
    bench.run_once(MINUTE_MS)
    first.write_bytes(content)
    os.utime(first, (0, 0))
    (directory / "minutes-0.parquet").symlink_to("nothing")
    remove_earlier(bench.root)
    assert first.exists()
    (directory / "minutes-0.parquet").unlink()
    remove_earlier(bench.root)
    assert [row["requests"] for row in bench.history("api")] == [1, 2]


def test_a_stop_writes_the_present_minute(bench: HistoryBench) -> None:
    bench.finish_requests(PRODUCE, 5, us=10)
    bench.run_once(1_000)
    bench.recorder.finish()
    assert [row["requests"] for row in bench.history("api")] == [5]


@pytest.mark.parametrize("is_read_first", [True, False])
def test_a_damaged_file_is_set_aside_with_one_line(
    bench: HistoryBench, caplog: pytest.LogCaptureFixture, *, is_read_first: bool
) -> None:
    bench.finish_requests(PRODUCE, 1, us=10)
    bench.run_once(MINUTE_MS)
    directory = hour_path(bench.root, "history", HOUR)
    path = present(newest(directory))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    if is_read_first:
        reader = HistoryReader(bench.root)
        for _ in range(2):
            assert reader.read(WALL_MS, WALL_MS + MINUTE_MS)["unreadable_hours_ms"] == [HOUR * 3_600_000]
    bench.start_recorder(replaces=True)
    bench.record(is_first=False)
    bench.finish_requests(PRODUCE, 2, us=10)
    bench.run_once(MINUTE_MS)
    (line,) = caplog.messages
    assert f"set aside as .{path.name}{DAMAGED}" in line
    assert [row["requests"] for row in bench.history("api")] == [2]
    assert HistoryReader(bench.root).read(WALL_MS, WALL_MS + MINUTE_MS)["unreadable_hours_ms"] == [HOUR * 3_600_000]
    assert apply_retention(bench.root, 1e12, Retention(-1, -1, 1000)) == 2
    assert not (bench.root / "history").exists()


def test_a_file_that_cannot_be_written_is_written_with_the_next_minute(bench: HistoryBench) -> None:
    in_the_way = bench.root / "history"
    in_the_way.write_text("")
    bench.finish_requests(PRODUCE, 1, us=10)
    bench.run_once(MINUTE_MS)
    assert bench.recorder.is_busy
    in_the_way.unlink()
    bench.finish_requests(PRODUCE, 2, us=10)
    bench.run_once(MINUTE_MS)
    assert [row["requests"] for row in bench.history("api")] == [1, 2]


@pytest.mark.parametrize("obstacle", ["directory", "link to nothing"])
def test_a_file_that_cannot_be_read_costs_no_rows(bench: HistoryBench, obstacle: str) -> None:
    in_the_way = hour_path(bench.root, "history", HOUR) / "minutes-00000000.parquet"
    in_the_way.parent.mkdir(parents=True)
    if obstacle == "directory":
        in_the_way.mkdir()
    else:
        in_the_way.symlink_to("nothing")
    assert HistoryReader(bench.root).read(WALL_MS, WALL_MS + MINUTE_MS)["unreadable_hours_ms"] == [HOUR * 3_600_000]
    bench.finish_requests(PRODUCE, 1, us=10)
    bench.run_once(MINUTE_MS)
    assert bench.recorder.is_busy
    if obstacle == "directory":
        in_the_way.rmdir()
    else:
        in_the_way.unlink()
    bench.finish_requests(PRODUCE, 2, us=10)
    bench.run_once(MINUTE_MS)
    assert [row["requests"] for row in bench.history("api")] == [1, 2]


def test_the_history_has_a_retention_of_its_own(bench: HistoryBench) -> None:
    bench.finish_requests(PRODUCE, 1, us=10)
    bench.run_once(MINUTE_MS)
    assert apply_retention(bench.root, 1e12, Retention(0, 0, -1)) == 0
    assert apply_retention(bench.root, 1e12, Retention(-1, -1, 1000)) == 1
    assert list(bench.root.iterdir()) == []


def test_without_retention_no_history_is_recorded(tmp_path: Path) -> None:
    bench = HistoryBench(tmp_path / "request-log", history_retention_ms=0)
    bench.push(rows_of(bench.clock, 4))
    bench.watched.add_event(WALL_MS * 1000, "rebalance", "billing: a member joined")
    bench.finish_requests(PRODUCE, 4)
    bench.run_once(MINUTE_MS)
    bench.recorder.finish()
    assert len(bench.read("requests")) == 4
    assert bench.read("history") == []
    assert not bench.recorder.is_busy


def test_a_range_becomes_points_of_whole_steps(bench: HistoryBench) -> None:
    for count in (1, 2, 3):
        bench.finish_requests(PRODUCE, count, us=10)
        bench.run_once(MINUTE_MS)
    found = HistoryReader(bench.root).read(WALL_MS, WALL_MS + 3_600_000)
    assert (found["step_ms"], found["points"]) == (MINUTE_MS, 60)
    assert found["series"]["api"]["Produce"]["requests"][:4] == [1, 2, 3, None]
    day = HistoryReader(bench.root).read(WALL_MS - 86_400_000, WALL_MS + MINUTE_MS * 5)
    assert day["step_ms"] == 5 * MINUTE_MS
    assert day["series"]["api"]["Produce"]["requests"][-1] == 6
    assert HistoryReader(bench.root).read(0, MINUTE_MS)["series"]["api"] == {}


def test_a_minute_has_the_errors_and_the_throttles(bench: HistoryBench) -> None:
    bench.finish_requests(PRODUCE, 2, error=3)
    bench.finish_requests(FETCH, 1, error=3)
    bench.finish_requests(FETCH, 1, error=6)
    bench.count(bench.processor, "quota_throttled", 4, "producer_byte_rate")
    bench.count(bench.processor, "quota_throttle_ns", 8_000_000, "producer_byte_rate")
    errors = {row["name"]: row["requests"] for row in bench.minute("error")}
    assert errors == {"UNKNOWN_TOPIC_OR_PARTITION": 3, "NOT_LEADER_OR_FOLLOWER": 1}
    (throttle,) = bench.history("throttle")
    assert (throttle["name"], throttle["requests"], throttle["throttleTimeUs"]) == ("producer_byte_rate", 4, 8_000)


def test_a_minute_has_the_clients_from_the_rows_of_requests(bench: HistoryBench) -> None:
    bench.texts[7] = client_text(7, "other")
    rows = rows_of(bench.clock, 4, request_bytes=10, response_bytes=20)
    rows["client"] = [CLIENT, CLIENT, CLIENT, 7]
    rows["error_code"] = [3, 0, 0, 0]
    bench.push(rows)
    bench.run_once()
    sampled = rows[1:2].copy()
    sampled["weight"] = 4
    assert bench.watched.clients is not None
    bench.watched.clients.add(sampled)
    found = {row["name"]: row for row in bench.minute("client")}
    assert set(found) == {"someone", "other"}
    someone = found["someone"]
    assert [someone[name] for name in ("requests", "errors", "bytesIn", "bytesOut")] == [7, 1, 70, 140]


def test_of_many_clients_the_largest_have_rows(bench: HistoryBench) -> None:
    for number in range(100, 130):
        bench.texts[number] = client_text(number, f"client-{number}")
    rows = rows_of(bench.clock, sum(range(1, 31)))
    rows["client"] = np.repeat(range(100, 130), range(1, 31))
    bench.push(rows)
    bench.run_once()
    found = {row["name"]: row["requests"] for row in bench.minute("client")}
    assert len(found) == MOST_NAMES + 1
    assert (found["client-129"], found[OTHERS]) == (30, sum(range(1, 21)))


def append(bench: HistoryBench, row: int, records: int) -> None:
    """Have an owner append records of 10 bytes each."""
    bench.table.set_state(row, STATE_OPEN)
    bench.table.row_writer(row).count_appended(records, 10 * records)


def test_a_minute_has_the_topics_from_their_counters(bench: HistoryBench) -> None:
    append(bench, 0, 5)
    bench.table.count_fetched(0, 0, 30)
    append(bench, 1, 2)
    first = {row["name"]: (row["records"], row["bytesIn"], row["bytesOut"]) for row in bench.minute("topic")}
    assert first == {"a": (5, 50, 30), "b": (2, 20, 0)}
    append(bench, 1, 1)
    assert [(row["name"], row["records"]) for row in bench.minute("topic")[2:]] == [("b", 1)]


def test_a_later_recorder_counts_from_its_start(bench: HistoryBench) -> None:
    append(bench, 0, 5)
    bench.finish_requests(PRODUCE, 5)
    bench.start_recorder(replaces=False)
    bench.record(is_first=False)
    append(bench, 0, 1)
    (row,) = bench.minute("topic")
    assert row["records"] == 1
    assert [row["name"] for row in bench.history("api")] == ["API_VERSIONS"]


def test_a_minute_has_the_roles_and_the_broker(bench: HistoryBench) -> None:
    bench.count(bench.handler, "idle_ns", 10)
    bench.count(bench.handler, "busy_ns", 30)
    bench.count(bench.processor, "bytes_received", 500)
    bench.count(bench.processor, "bytes_sent", 600)
    bench.processor.set(bench.processor.index("connections"), 3)
    assert bench.ring.claim(RING_BYTES // 2 - 8) >= 0
    bench.ring.publish()
    bench.finish_requests(PRODUCE, 1)
    bench.run_once()
    bench.run_once(1_000)
    (broker,) = bench.minute("broker")
    assert (broker["requests"], broker["bytesIn"], broker["bytesOut"], broker["connections"]) == (2, 500, 600, 3)
    assert 0 < broker["diskFreeBytes"] < broker["diskBytes"]
    roles = {row["name"]: row for row in bench.history("role")}
    assert roles["processor"]["cpuTimeUs"] >= 0
    bench.slots.set_pid(HANDLER, 0, os.getpid())
    bench.count(bench.handler, "busy_ns", 30)
    bench.count(bench.handler, "idle_ns", 10)
    handler = [row for row in bench.minute("role") if row["name"] == "handler"][-1]
    assert (handler["utilisation"], handler["utilisationMean"]) == (0.75, 0.75)
    assert handler["ringFillPeak"] == 0.5


def lag(bench: HistoryBench, group: str, records: int, age_us: int | None) -> None:
    """Have a coordinator send the lag of a group's topic."""
    event = {"group": group, "topic": "a", "records": records, "durationUs": age_us}
    bench.watched.lags.add({**event, "time": bench.clock.wall_ms() * 1000})


def test_the_lag_of_a_group_holds_until_it_changes_and_its_age_grows(bench: HistoryBench) -> None:
    lag(bench, "slow", 1_000, 5_000_000)
    lag(bench, "quick", 0, 0)
    for minute in range(1, 3):
        found = {row["name"]: (row["records"], row["lagUs"]) for row in bench.minute("group")[-2:]}
        assert found == {"slow": (1_000, 5_000_000 + minute * 60_000_000), "quick": (0, 0)}
    lag(bench, "slow", 7, None)
    assert [(row["records"], row["lagUs"]) for row in bench.minute("group") if row["name"] == "slow"][-1] == (7, None)


def test_events_are_noticed_without_requests(bench: HistoryBench) -> None:
    bench.run_once(2_000)
    assert not bench.recorder.is_busy
    bench.slots.set_exit_status(HANDLER, 0, -9)
    bench.slots.set_restarts(HANDLER, 0, 1)
    bench.storage = StorageReading(StorageState.FULL, 0, {})
    bench.listeners.append(ListenerEntry("TLS", "SSL", "here", 9093))
    bench.processor.set(bench.processor.index("certificate_not_after_ms", "0"), WALL_MS)
    bench.run_once(2_000)
    assert bench.recorder.is_busy
    bench.storage = StorageReading(StorageState.ROOM, 1 << 40, {})
    bench.processor.set(bench.processor.index("certificate_not_after_ms", "0"), 1_900_000_000_000)
    bench.run_once(2_000)
    bench.run_once(MINUTE_MS)
    found = {row["name"]: row["detail"] for row in bench.history("event")}
    assert found["process_restart"] == "handler 0 ended with signal 9"
    assert "full" in found["disk_full"]
    assert found["disk_freed"]
    assert found["listener"] == "added TLS (SSL) at here:9093"
    assert found["certificate"] == "PLAINTEXT: valid until 2030-03-17"
    assert len(bench.read("history")) == 5
    assert not bench.recorder.is_busy


def test_a_new_acl_is_an_event_in_words(bench: HistoryBench) -> None:
    acl = Acl(ResourceType.TOPIC, "orders", PatternType.PREFIXED, "User:alice", "*", Operation.READ, Permission.ALLOW)
    with closing(MetadataStore.open(bench.metadata)) as store:
        with store.transaction() as transaction:
            transaction.set_entity(EntityKind.GROUP, "known before", {"consumer.session.timeout.ms": "1"})
        bench.record()
        with store.transaction() as transaction:
            transaction.set_entity(EntityKind.ACL, stored_name(acl), {"": 1})
        bench.metadata_version = 2
    bench.run_once(2_000)
    bench.run_once(MINUTE_MS)
    found = [(row["name"], row["detail"]) for row in bench.history("event")]
    assert found == [("security", "ACL ALLOW READ on TOPIC orders (prefixed) for User:alice from * added")]


def test_events_of_a_discarded_minute_may_be_written_later(bench: HistoryBench) -> None:
    for keeps_events, room in ((False, StorageState.GONE), (True, StorageState.ROOM)):
        bench.clock.advance_ms(2_000)
        bench.storage = StorageReading(room, 0, {})
        bench.count(bench.processor, "requests_received", 1)
        bench.watched.discard(bench.clock.wall_ms() * 1000, keeps_events=keeps_events)
    bench.run_once(MINUTE_MS)
    bench.run_once(MINUTE_MS)
    assert [row["name"] for row in bench.history("event")] == ["disk_freed"]


def test_of_many_events_the_first_have_rows(bench: HistoryBench) -> None:
    for number in range(MOST_EVENTS + 7):
        bench.watched.add_event(WALL_MS * 1000, "rebalance", str(number))
    bench.run_once(MINUTE_MS)
    found = bench.history("event")
    assert len(found) == MOST_EVENTS + 1
    assert [row["detail"] for row in found if row["name"] == OTHERS] == ["7 more events"]


def test_a_range_has_its_events(bench: HistoryBench) -> None:
    bench.watched.add_event((WALL_MS + 1_000) * 1000, "rebalance", "billing: a member joined")
    bench.run_once(MINUTE_MS)
    found = HistoryReader(bench.root).read(WALL_MS, WALL_MS + MINUTE_MS)["events"]
    assert found == [{"time_ms": WALL_MS + 1_000, "name": "rebalance", "detail": "billing: a member joined"}]
    assert HistoryReader(bench.root).read(WALL_MS + 2_000, WALL_MS + MINUTE_MS)["events"] == []


def test_a_day_with_the_most_names_is_at_most_5_mb(tmp_path: Path) -> None:
    seed = random_seed()
    rng = random.Random(seed)
    names = {"api": 24, "error": 11, "client": 11, "topic": 11, "group": 11, "role": 8, "throttle": 4, "broker": 1}
    columns = [column for column in DATASETS["history"].columns if column.nullable and column.kind != "string"]
    of_kind = {
        "api": [each for each in columns if each.name.endswith("Us") and each.name[0] in "qlrst"][-18:] + columns[:4],
        **dict.fromkeys(("error", "throttle"), columns[:1]),
        **dict.fromkeys(("client", "topic", "group"), columns[:5]),
        "role": columns[7:11],
        "broker": columns[:4] + columns[11:18],
    }
    files = HourFiles(tmp_path)
    for minute in range(60):
        for kind, count in names.items():
            for number in range(count):
                values = {
                    each.name: rng.random() if each.kind == "double" else rng.randrange(1_000_000)
                    for each in of_kind[kind]
                }
                time_us = HOUR * HOUR_US + minute * 60_000_000
                files.add({"time": time_us, "kind": kind, "name": f"{kind} of name {number}", **values})
    files.save()
    assert present(newest(hour_path(tmp_path, "history", HOUR))).stat().st_size * 24 <= 5_000_000, seed
