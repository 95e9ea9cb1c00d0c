"""From rings to files: their contents, when they can be seen, and the reports of lost rows."""

import json
import os
import resource
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from rotunda.broker.request_log import part_files
from rotunda.broker.request_log.columns import DATASETS
from rotunda.broker.request_log.names import MOST_DENIALS, Denial
from rotunda.broker.request_log.part_files import apply_retention, finished, remove_unfinished
from rotunda.broker.request_log.row_buffers import GROUP_ROWS
from rotunda.broker.request_log.slow_requests import durations_ns, is_slow
from rotunda.shm.recorder_layout import INJECTED, INJECTED_SHIFT, MIXED_CODECS, REQUEST_ROW, THROTTLED_BY
from rotunda.shm.rings.recorder_rings import RecorderFeed, Retention, pack_text
from tests.support.fakes import FakeClock
from tests.support.recorder_bench import CLIENT, WALL_MS, RecorderBench, client_text, rows_of

ROLL_MS = 60_000
PHASES = ("requestQueueTimeUs", "localTimeUs", "remoteTimeUs", "responseQueueTimeUs", "sendTimeUs")


@pytest.fixture
def bench(tmp_path: Path) -> RecorderBench:
    return RecorderBench(tmp_path / "request-log")


def files(bench: RecorderBench) -> list[str]:
    return sorted(str(part.path.relative_to(bench.root)) for part in finished(bench.root))


def test_d14_d19_a_row_says_who_asked_what_and_where_the_time_went(bench: RecorderBench) -> None:
    """Rows D14, D16, D19; users.md rows 5, 6 and 22."""
    rows = rows_of(
        bench.clock, 1, api_key=0, api_version=9, partition_row=1, partition_count=3, record_count=7, acks=-1
    )
    rows["throttle_ms"], rows["error_code"], rows["request_bytes"], rows["response_bytes"] = 4, 3, 100, 50
    bench.push(rows)
    bench.run_once(ROLL_MS)
    bench.run_once(ROLL_MS)
    (row,) = bench.read("requests")
    assert set(row) == {column.name for column in DATASETS["requests"].columns}
    assert (row["requestApiKeyName"], row["requestApiVersion"], row["acks"]) == ("PRODUCE", 9, -1)
    assert row["requestApiVersionDeprecated"] is False
    assert (row["topic"], row["partition"], row["partitionCount"], row["records"]) == ("b", 0, 3, 7)
    assert (row["clientId"], row["softwareName"], row["address"]) == ("someone", "lib", "127.0.0.1")
    assert (row["errorCode"], row["errorName"]) == (3, "UNKNOWN_TOPIC_OR_PARTITION")
    assert [row[phase] for phase in PHASES] == [10, 20, 30, 40, 50]
    assert (row["totalTimeUs"], row["throttleTimeUs"], row["sampleWeight"]) == (150, 4000, 1)
    assert (row["minBytes"], row["isolationLevel"]) == (None, None)
    assert row["time"].timestamp() * 1e6 == pytest.approx(WALL_MS * 1000 - 150, abs=1)


def test_e14_a_row_says_which_quota_gave_the_throttle_time(bench: RecorderBench) -> None:
    rows = rows_of(bench.clock, len(THROTTLED_BY) + 1)
    rows["throttled_by"] = range(len(THROTTLED_BY) + 1)
    bench.push(rows)
    bench.run_once(ROLL_MS)
    bench.run_once(ROLL_MS)
    assert [row["throttledBy"] for row in bench.read("requests")] == [None, *THROTTLED_BY]


def test_a_row_says_what_a_test_has_injected(bench: RecorderBench) -> None:
    rows = rows_of(bench.clock, 16)
    rows["throttled_by"] = [3 | bits << INJECTED_SHIFT for bits in range(16)]
    bench.push(rows)
    bench.run_once(ROLL_MS)
    bench.run_once(ROLL_MS)
    read = bench.read("requests")
    assert [row["injected"] for row in read][:4] == [None, "error", "delay", "error+delay"]
    assert read[15]["injected"] == "+".join(INJECTED)
    assert {row["throttledBy"] for row in read} == {THROTTLED_BY[2]}


def test_a_row_says_what_was_denied(bench: RecorderBench) -> None:
    """Also of an earlier denial; unknown ones are left out, and their cache is limited."""
    clients = bench.recorder._clients
    clients.learn_denial(-5, b'["WRITE", "Topic", "orders"]')
    rows = rows_of(bench.clock, 3)
    rows["denial"] = [0, -5, -6]
    bench.push(rows)
    bench.run_once(ROLL_MS)
    bench.run_once(ROLL_MS)
    names = ("deniedOperation", "deniedResourceType", "deniedResource")
    found = [tuple(row[name] for name in names) for row in bench.read("requests")]
    assert found == [(None,) * 3, ("WRITE", "Topic", "orders"), (None,) * 3]
    for number in range(MOST_DENIALS):
        clients.learn_denial(-10 - number, b"[]")
    assert clients.denial(-5) == Denial()


def test_a_row_has_no_gaps() -> None:
    """Numpy removes them when it joins rows, and joined rows are then read as rows again."""
    dtype = REQUEST_ROW.dtype
    assert sum(dtype[name].itemsize for name in dtype.names or ()) == dtype.itemsize == REQUEST_ROW.size


def test_codec_bytes_and_longest_wait_are_null_where_they_do_not_apply(bench: RecorderBench) -> None:
    rows = rows_of(bench.clock, 8)
    rows["codec"] = [-1, 0, 1, 2, 3, 4, 7, MIXED_CODECS]
    rows["record_bytes"] = [-1, 0, 1, 2, 3, 4, 5, 2**31 - 1]
    rows["max_wait_ms"] = [-1, 0, 500, -1, -1, -1, -1, -1]
    bench.push(rows)
    bench.run_once()
    bench.recorder.finish()
    told = bench.read("requests")
    assert [row["codec"] for row in told] == [None, "none", "gzip", "snappy", "lz4", "zstd", "7", "mixed"]
    assert [row["recordBytes"] for row in told] == [None, 0, 1, 2, 3, 4, 5, 2**31 - 1]
    assert [row["maxWaitMs"] for row in told[:4]] == [None, 0, 500, None]


def test_d19_c17_deprecated_versions_are_marked(bench: RecorderBench) -> None:
    """KIP-896: versions up to 2 of AlterConfigs, which are served but deprecated; others and unknown APIs are not."""
    rows = rows_of(bench.clock, 4)
    rows["api_key"], rows["api_version"] = [33, 33, 3, 999], [1, 3, 1, 0]
    bench.push(rows)
    bench.run_once()
    bench.recorder.finish()
    assert [row["requestApiVersionDeprecated"] for row in bench.read("requests")] == [True, False, False, False]


def test_phases_add_up_whatever_the_stamps_are(bench: RecorderBench) -> None:
    rows = rows_of(bench.clock, 500)
    noise = np.random.default_rng(7).integers(-90_000, 90_000, (5, 500))
    for stamp, offsets in zip(("dequeued_ns", "local_complete_ns", "taken_ns"), noise, strict=False):
        rows[stamp] += offsets
    bench.push(rows)
    bench.run_once()
    bench.run_once(ROLL_MS)
    for row in bench.read("requests"):
        assert sum(row[phase] for phase in PHASES) == row["totalTimeUs"]
        assert min(row[phase] for phase in PHASES) >= 0


def test_each_row_lies_in_the_hour_of_its_time(bench: RecorderBench) -> None:
    bench.push(rows_of(bench.clock, 3))
    bench.clock.advance_ms(1_800_000)
    late = rows_of(bench.clock, 4, spans_us=(0, 0, 2_000_000, 0, 0))
    late["received_ns"][2:] += 2_000_000_000
    bench.push(late)
    bench.run_once()
    bench.run_once(ROLL_MS)
    hours = [name.split("/")[2:4] for name in files(bench) if name.startswith("requests")]
    assert hours == [["date=2023-11-14", "hour=22"], ["date=2023-11-14", "hour=23"]]
    assert [len(bench.read("requests")), files(bench)[0].split("/")[1]] == [7, "v=1"]


def test_no_file_is_seen_before_it_is_whole(bench: RecorderBench) -> None:
    pushes = GROUP_ROWS // 1000 + 1
    for _ in range(pushes):
        bench.push(rows_of(bench.clock, 1000))
        bench.run_once()
    assert not [name for _, _, names in os.walk(bench.root) for name in names]
    bench.recorder.finish()
    assert len(bench.read("requests")) == pushes * 1000


def test_an_unfinished_file_is_removed(bench: RecorderBench) -> None:
    unfinished = bench.root / "requests" / "v=1" / ".part-x-1.parquet.unfinished"
    unfinished.parent.mkdir(parents=True)
    unfinished.write_bytes(b"PAR1")
    assert remove_unfinished(bench.root) is None
    assert not unfinished.exists()


def test_a_killed_recorder_loses_what_was_not_in_a_finished_file_and_its_replacement_says_so(
    bench: RecorderBench,
) -> None:
    bench.push(rows_of(bench.clock, 5))
    bench.run_once()
    bench.run_once(ROLL_MS)
    bench.push(rows_of(bench.clock, 100))
    bench.run_once()
    bench.push(rows_of(bench.clock, 20))
    bench.start_recorder(replaces=True)
    bench.run_once()
    bench.run_once(ROLL_MS)
    assert len(bench.read("requests")) == 25
    (gap,) = bench.read("gaps")
    assert (gap["dataset"], gap["source"], gap["index"], gap["cause"], gap["rows"]) == (
        "requests", "processor", 0, "recorder_killed", 100,
    )  # fmt: skip
    bench.start_recorder(replaces=True)
    bench.run_once(ROLL_MS)
    bench.recorder.finish()
    assert len(bench.read("gaps")) == 1


def test_a_recorder_that_is_killed_before_it_could_say_so_leaves_that_to_the_next(bench: RecorderBench) -> None:
    bench.push(rows_of(bench.clock, 100))
    bench.run_once()
    for _ in range(3):
        bench.start_recorder(replaces=True)
        bench.run_once()
    bench.recorder.finish()
    assert [gap["rows"] for gap in bench.read("gaps")] == [100]


def test_a_full_ring_drops_and_counts(bench: RecorderBench) -> None:
    """users.md row 28: a loss is counted, shown and written down."""
    settings = bench.sender._feed.settings
    settings.store(enabled=True, sample_interval=1, slow_ns=0, rows_per_second=0, retention=Retention())
    total = 0
    for _ in range(60):
        bench.push(rows_of(bench.clock, 1000))
        total += 1000
    bench.run_once()
    bench.recorder.finish()
    recorded = bench.read("requests")
    gaps = bench.read("gaps")
    assert {gap["cause"] for gap in gaps} == {"ring_full"}
    assert sum(row["sampleWeight"] for row in recorded) + sum(gap["rows"] for gap in gaps) == total
    account = bench.rings.account(0)
    assert account.get("rows_dropped") == account.get("rows_dropped_told") > 0


def test_a_killed_processor_leaves_a_gap_of_what_it_had_in_memory(bench: RecorderBench) -> None:
    bench.push(rows_of(bench.clock, 10))
    bench.take(33)
    bench.start_sender()
    bench.run_once()
    bench.recorder.finish()
    assert len(bench.read("requests")) == 10
    (gap,) = bench.read("gaps")
    assert (gap["cause"], gap["rows"]) == ("processor_killed", 33)


def test_a_file_that_cannot_be_written_becomes_a_gap(bench: RecorderBench) -> None:
    (bench.root / "requests").write_bytes(b"in the way")
    bench.push(rows_of(bench.clock, 10))
    bench.run_once()
    bench.run_once(ROLL_MS)
    bench.run_once(ROLL_MS)
    (gap,) = bench.read("gaps")
    assert (gap["cause"], gap["rows"]) == ("write_failed", 10)
    (bench.root / "requests").unlink()
    bench.push(rows_of(bench.clock, 4))
    bench.run_once()
    bench.recorder.finish()
    assert len(bench.read("requests")) == 4
    account = bench.rings.account(0)
    assert account.get("rows_settled") == account.get("rows_pushed") == 14


def test_a_full_disk_loses_rows_and_never_the_account_of_them(bench: RecorderBench) -> None:
    """users.md row 28. Neither rows nor gaps can be written for a while; half-written files are deleted."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, most))
    try:
        for count in (10, 20, 30):
            bench.push(rows_of(bench.clock, count))
            bench.run_once()
            bench.run_once(ROLL_MS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    assert [path for path in bench.root.rglob("*") if path.is_file()] == []
    bench.push(rows_of(bench.clock, 4))
    bench.run_once()
    bench.recorder.finish()
    assert len(bench.read("requests")) == 4
    gaps = bench.read("gaps")
    assert {gap["cause"] for gap in gaps} == {"write_failed"}
    assert sum(gap["rows"] for gap in gaps) == 60
    account = bench.rings.account(0)
    assert account.get("rows_settled") == account.get("rows_pushed") == 64
    # It is reported once.
    bench.recorder.finish()
    assert len(bench.read("gaps")) == len(gaps)


def test_losses_whose_row_could_not_be_written_are_told_once(bench: RecorderBench) -> None:
    (bench.root / "gaps").write_bytes(b"in the way")
    bench.rings.account(0).add("rows_dropped", 7)
    bench.run_once()
    for _ in range(3):
        bench.run_once(ROLL_MS)
    (bench.root / "gaps").unlink()
    for _ in range(3):
        bench.run_once(ROLL_MS)
    assert [(gap["cause"], gap["rows"]) for gap in bench.read("gaps")] == [("ring_full", 7)]
    assert bench.rings.account(0).get("rows_dropped_told") == 7


@pytest.mark.parametrize("step_ms", [-7_200_000, 7_200_000], ids=["back", "ahead"])
def test_rows_lie_in_the_hour_of_their_time_when_the_clock_is_set(bench: RecorderBench, step_ms: int) -> None:
    """Rows in the buffer were sorted by the clock as it was, and are written by it."""
    bench.push(rows_of(bench.clock, 3))
    bench.run_once()
    bench.clock.set_wall(step_ms)
    bench.push(rows_of(bench.clock, 4))
    bench.run_once()
    bench.recorder.finish()
    places: Counter[int] = Counter()
    for part in finished(bench.root / "requests"):
        for row in pq.read_table(part.path, partitioning=None, columns=["time"]).to_pylist():
            assert part.path.parent.name == f"hour={row['time']:%H}"
            places[row["time"].hour] += 1
    assert sorted(places.values()) == [3, 4]


def test_sampling_keeps_what_failed_and_what_was_slow(tmp_path: Path) -> None:
    """users.md row 22."""
    bench = RecorderBench(tmp_path / "log", request_log_sample_interval=10, request_log_slow_threshold_ms=50)
    ordinary, failed = rows_of(bench.clock, 20_000), rows_of(bench.clock, 300, error_code=7)
    slow = rows_of(bench.clock, 200, spans_us=(50_000, 0, 0, 0, 0))
    waiting = rows_of(bench.clock, 5_000, spans_us=(0, 0, 500_000, 0, 0), api_key=1)
    for rows in (ordinary, failed, slow, waiting):
        for first in range(0, len(rows), 1000):
            bench.push(rows[first : first + 1000])
            bench.run_once()
    bench.recorder.finish()
    recorded = bench.read("requests")
    assert sum(row["errorCode"] == 7 for row in recorded) == 300
    assert sum(row["slow"] for row in recorded) == 200
    rest = [row for row in recorded if not row["slow"] and not row["errorCode"]]
    assert {row["sampleWeight"] for row in rest} == {10}
    assert sum(row["sampleWeight"] for row in rest) == pytest.approx(25_000, rel=0.15)
    assert not bench.read("gaps")


def test_beyond_so_many_rows_a_second_each_row_stands_for_several(tmp_path: Path) -> None:
    """users.md row 22: failed requests are all there, and the weights add up to the number of requests."""
    bench = RecorderBench(tmp_path / "log", request_log_rows_per_second=1000)
    for _ in range(40):
        bench.push(rows_of(bench.clock, 1000))
        bench.push(rows_of(bench.clock, 1, error_code=7))
        bench.run_once(100)
    bench.recorder.finish()
    recorded = bench.read("requests")
    ordinary = [row["sampleWeight"] for row in recorded if not row["errorCode"]]
    assert len(recorded) - len(ordinary) == 40
    assert ordinary.count(1) >= 1000, "a second's worth is recorded whole at first"
    assert len(ordinary) == pytest.approx(5 * 1000, rel=0.15)
    assert sum(ordinary) == pytest.approx(40_000, rel=0.05)
    assert not bench.read("gaps")


def test_a_log_that_is_off_costs_nothing_and_misses_nothing(tmp_path: Path) -> None:
    bench = RecorderBench(tmp_path / "log", request_log_enable="false")
    bench.push(rows_of(bench.clock, 100))
    bench.run_once()
    bench.recorder.finish()
    assert files(bench) == []
    account = bench.rings.account(0)
    assert (account.get("rows_skipped"), account.get("rows_pushed")) == (100, 0)


def test_a_row_of_the_partition_table_keeps_the_name_that_it_had(bench: RecorderBench) -> None:
    bench.push(rows_of(bench.clock, 1, partition_row=2))
    bench.run_once()
    bench.topics = {"a": 0, "reborn": 2}
    bench.recorder.run_once(1)
    bench.push(rows_of(bench.clock, 1, partition_row=2))
    bench.recorder.run_once(1)
    bench.recorder.finish()
    assert [row["topic"] for row in bench.read("requests")] == ["c", "reborn"]


def test_only_rows_of_the_partition_table_that_are_known_have_a_topic(bench: RecorderBench) -> None:
    """Whether they are before the known ones, between them or after them."""
    bench.topics = {"first": 0, "edge": 1022, "next": 1023, "far": 5000}
    told = [-1, 0, 3, 1021, 1022, 1023, 1024, 4999, 5000, 5001, 10_001, 10_002, 2**31 - 1, -(2**31)]
    rows = rows_of(bench.clock, len(told))
    rows["partition_row"] = told
    for each in (rows, rows[:1], rows[-1:]):
        bench.push(each)
    bench.run_once()
    bench.recorder.finish()
    names = {row: name for name, row in bench.topics.items()}
    expected = [names.get(row) for row in (*told, told[0], told[-1])]
    assert [row["topic"] for row in bench.read("requests")] == expected


def test_what_a_request_waited_for_others_does_not_make_it_slow() -> None:
    rng = np.random.default_rng(3)
    rows = rows_of(FakeClock(monotonic_ns=10**12), 300)
    for name in ("local_complete_ns", "response_complete_ns", "end_ns"):
        rows[name] += rng.integers(0, 10**9, len(rows))
    rows["api_key"] = rng.integers(0, 20, len(rows))
    for part in (rows, rows[rows["api_key"] == 0], rows[rows["api_key"] == 14], rows[:0]):
        part.flags.writeable = False
        expected = [
            row["end_ns"]
            - row["received_ns"]
            - (row["response_complete_ns"] - row["local_complete_ns"] if row["api_key"] in (1, 11, 14) else 0)
            for row in part
        ]
        assert durations_ns(part).tolist() == expected
        assert is_slow(part, 10**9).tolist() == [each >= 10**9 for each in expected]


def test_frames_explain_themselves_to_a_recorder_that_was_replaced(bench: RecorderBench) -> None:
    bench.texts[CLIENT + 1] = client_text(CLIENT + 1, "another")
    both = rows_of(bench.clock, 2)
    both["client"][1] = CLIENT + 1
    bench.push(both)
    bench.run_once()
    bench.push(both)
    bench.start_recorder(replaces=True)
    bench.run_once()
    bench.recorder.finish()
    assert [row["clientId"] for row in bench.read("requests")] == ["someone", "another"]


def test_events_of_groups_have_a_dataset(bench: RecorderBench) -> None:
    """users.md row 21."""
    feed = RecorderFeed(bench.rings, bench.rings.of_target(0))
    fields = {"time": WALL_MS * 1000, "group": "g", "member": None, "event": "rebalance", "reason": "why"}
    text = json.dumps({**fields, "handler": 0, "dataset": "groups"}).encode()
    assert feed.try_push((0, b""), (1, b""), (1, pack_text(-1, text)))
    feed.publish()
    bench.run_once()
    bench.recorder.finish()
    (event,) = bench.read("groups")
    assert (event["group"], event["member"], event["event"], event["reason"]) == ("g", None, "rebalance", "why")


def test_followers_get_files_sooner(bench: RecorderBench) -> None:
    bench.push(rows_of(bench.clock, 1))
    bench.run_once()
    bench.run_once(2000)
    assert not bench.read("requests")
    followed = bench.root / part_files.FOLLOWED
    followed.touch()
    os.utime(followed, (bench.clock.wall_ms() / 1000,) * 2)
    bench.run_once()
    assert len(bench.read("requests")) == 1


def test_the_oldest_files_go_by_age_and_by_size(bench: RecorderBench) -> None:
    for _ in range(6):
        bench.push(rows_of(bench.clock, 50))
        bench.run_once()
        bench.recorder.finish()
    parts = sorted(finished(bench.root), key=lambda part: part.path)
    for age, part in enumerate(reversed(parts)):
        os.utime(part.path, (1_000_000 - 100 * age,) * 2)
    assert apply_retention(bench.root, 1_000_000, Retention(450_000)) == 1
    size = parts[-1].size_bytes
    assert apply_retention(bench.root, 1_000_000, Retention(-1, 3 * size + size // 2)) == 2
    assert [part.path for part in sorted(finished(bench.root), key=lambda part: part.path)] == [
        part.path for part in parts[3:]
    ]
    assert apply_retention(bench.root, 1_000_000, Retention(0)) == 2
    assert apply_retention(bench.root, 2_000_000, Retention(0)) == 1
    assert list(bench.root.iterdir()) == []


def test_files_of_others_are_kept(bench: RecorderBench) -> None:
    bench.push(rows_of(bench.clock, 1))
    bench.run_once()
    bench.recorder.finish()
    (part,) = finished(bench.root)
    own = [bench.root / "mine.parquet", bench.root / "requests" / "part-1-1-1.parquet"]
    own += [part.path.with_name(name) for name in ("mine.parquet", "part-1.parquet", f"copy-{part.path.name}")]
    for path in own:
        path.write_bytes(b"mine")
    assert apply_retention(bench.root, 1e12, Retention(0, 0, 0)) == 1
    assert not part.path.exists()
    assert all(path.exists() for path in own)


def test_files_are_finished_when_they_are_large(tmp_path: Path) -> None:
    bench = RecorderBench(tmp_path / "log", request_log_roll_bytes=1)
    for _ in range(2 * GROUP_ROWS // 1000 + 2):
        bench.push(rows_of(bench.clock, 1000))
        bench.run_once()
    names = files(bench)
    assert len(names) == 2
    assert all(first < second for first, second in pairwise(names))
