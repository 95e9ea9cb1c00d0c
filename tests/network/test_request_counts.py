"""The metrics of finished requests: versions, errors, sizes, throttle times, and clients with old versions."""

import json
import random

import numpy as np
import pytest

from rotunda.broker.network.accounting.request_counts import record_connections, record_requests, software_text
from rotunda.broker.protocol.api_keys import DEPRECATED_UP_TO
from rotunda.shm.metrics.catalogue import PHASES
from rotunda.shm.metrics.process_metrics import MetricsReader, MetricsReading, MetricsSegment, MetricsWriter
from rotunda.shm.recorder_layout import REQUEST_ROW
from rotunda.shm.rings.recorder_rings import pack_text
from rotunda.shm.tables.process_slots import PROCESSOR

PRODUCE, FETCH, API_VERSIONS, ALTER_CONFIGS, UNKNOWN = 0, 1, 18, 33, 999


STAMPS = ("received_ns", "dequeued_ns", "local_complete_ns", "response_complete_ns", "taken_ns", "end_ns")


@pytest.fixture
def page() -> memoryview:
    return new_page()


def new_page() -> memoryview:
    pages = MetricsSegment(memoryview(bytearray(MetricsSegment.bytes_needed(1, 1))), 1, 1)
    pages.initialise()
    return pages.page(PROCESSOR, 0)


def counted(
    page: memoryview, rows: list[tuple[int, int, int]], texts: dict[int, bytes] | None = None
) -> MetricsReading:
    """Count rows of (api key, version, error code), each of 100 bytes and throttled for 5 ms."""
    table = np.zeros(len(rows), REQUEST_ROW.dtype)
    for row, (key, version, error) in zip(table, rows, strict=True):
        row["api_key"], row["api_version"], row["error_code"] = key, version, error
        row["request_bytes"], row["throttle_ms"], row["client"] = 100, 5, 77
    record_requests(table, texts or {}, MetricsWriter(page))
    return MetricsReader(page).read()


def test_f_requests_by_api_and_version(page: memoryview) -> None:
    """RequestsPerSec{request,version} of section F."""
    counted(page, [(PRODUCE, 9, 0), (PRODUCE, 9, 0), (FETCH, 12, 0)])
    assert counted(page, [(PRODUCE, 3, 0)]).tables["requests"] == {(PRODUCE, 9): 2, (FETCH, 12): 1, (PRODUCE, 3): 1}


def test_d18_errors_by_api_and_code_with_none_included(page: memoryview) -> None:
    reading = counted(page, [(PRODUCE, 9, 0), (PRODUCE, 9, -1), (PRODUCE, 9, 3), (PRODUCE, 9, 3), (FETCH, 12, 0)])
    assert reading.tables["request_errors"] == {(PRODUCE, -1): 1, (PRODUCE, 0): 1, (PRODUCE, 3): 2, (FETCH, 0): 1}


def test_d16_d17_sizes_and_throttle_times(page: memoryview) -> None:
    histograms = counted(page, [(FETCH, 12, 0)] * 3).histograms
    assert (histograms["request_bytes", FETCH, ""].count, histograms["request_bytes", FETCH, ""].sum) == (3, 300)
    assert histograms["throttle_ns", FETCH, ""].sum == 15_000_000


def test_e17_throttle_times_by_the_quota_that_gave_them(page: memoryview) -> None:
    table = np.zeros(4, REQUEST_ROW.dtype)
    table["api_key"] = PRODUCE
    table["throttle_ms"] = (10, 20, 0, 40)
    table["throttled_by"] = (1, 1, 1, 8)
    record_requests(table, {}, MetricsWriter(page))
    values = MetricsReader(page).read().values
    shown = {key: value for key, value in values.items() if key[0].startswith("quota_") and value}
    assert shown == {
        ("quota_throttled", "producer_byte_rate"): 2,
        ("quota_throttle_ns", "producer_byte_rate"): 30_000_000,
        ("quota_throttled", "overload.queue.time.ms"): 1,
        ("quota_throttle_ns", "overload.queue.time.ms"): 40_000_000,
    }


def test_d14_d17_rows_of_many_apis_are_recorded_as_one_by_one(page: memoryview) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = np.random.default_rng(seed)
    rows = np.zeros(500, REQUEST_ROW.dtype)
    rows["api_key"] = chance.choice([PRODUCE, FETCH, API_VERSIONS, ALTER_CONFIGS, UNKNOWN, -5], len(rows))
    rows["request_bytes"] = chance.integers(0, 2**31, len(rows))
    for name in STAMPS:
        rows[name] = chance.integers(0, 2**40, len(rows))
    one_by_one = MetricsWriter(page)
    for row in rows[np.isin(rows["api_key"], [PRODUCE, FETCH, API_VERSIONS, ALTER_CONFIGS])]:
        key, stamps = int(row["api_key"]), [int(row[name]) for name in STAMPS]
        for phase, gap in zip(PHASES, (*np.diff(stamps), stamps[-1] - stamps[0]), strict=True):
            one_by_one.record(one_by_one.phase(key, phase), int(gap))
        one_by_one.record(one_by_one.histogram("request_bytes", key), int(row["request_bytes"]))
        one_by_one.record(one_by_one.histogram("throttle_ns", key), 0)
    wanted = MetricsReader(page).read().histograms
    page[:] = new_page()
    record_requests(rows, {}, MetricsWriter(page))
    assert MetricsReader(page).read().histograms == wanted


def test_invented_names_and_versions_are_omitted(page: memoryview) -> None:
    reading = counted(page, [(UNKNOWN, 0, 0), (-5, -7, 35)])
    assert reading.tables["requests"] == {}
    assert reading.tables["request_errors"] == {}
    assert reading.histograms == {}


def test_c17_deprecated_requests_name_the_software(page: memoryview) -> None:
    texts = {77: pack_text(77, json.dumps([1, "id", "museum", "0.1", "peer"]).encode())}
    newest = DEPRECATED_UP_TO[ALTER_CONFIGS]
    rows = [(ALTER_CONFIGS, 0, 0), (ALTER_CONFIGS, newest, 0), (FETCH, 4, 0), (ALTER_CONFIGS, newest + 1, 0)]
    counted(page, rows, texts)
    # The client of a closed connection may be unknown.
    reading = counted(page, rows[:1])
    museum = next(number for number, text in reading.texts.items() if text == "museum\n0.1")
    assert reading.tables["deprecated_requests"] == {
        (ALTER_CONFIGS, 0, museum): 1,
        (ALTER_CONFIGS, newest, museum): 1,
        (ALTER_CONFIGS, 0, 0): 1,
    }


def test_c09_connections_by_listener_and_software(page: memoryview) -> None:
    writer = MetricsWriter(page)
    record_connections({(0, "", ""): 2, (0, "a", "1"): 3, (1, "a", "1"): 1, (1, "a\n", "1"): 1}, writer)
    record_connections({(0, "a", "1"): 1}, writer)
    reading = MetricsReader(page).read()
    named = {
        (key[0], reading.texts.get(key[1], "")): value for key, value in reading.tables["client_connections"].items()
    }
    assert named == {(0, ""): 0, (0, "a\n1"): 1, (1, "a\n1"): 0, (1, "a \n1"): 0}
    assert software_text("", "") == ""


def test_names_of_software_end_with_their_last_connection(page: memoryview) -> None:
    """Invented names occupy no room after their connections have closed, so real ones are published."""
    writer = MetricsWriter(page)
    for number in range(1000):
        record_connections({(0, f"made-up-{number}-{each}", "1"): 1 for each in range(10)}, writer)
    record_connections({(0, "librdkafka", "2.8"): 5}, writer)
    reading = MetricsReader(page).read()
    reported = {reading.texts.get(key[1]): n for key, n in reading.tables["client_connections"].items() if n}
    assert reported == {"librdkafka\n2.8": 5}


def test_versions_that_a_client_makes_up_leave_room_for_others(page: memoryview) -> None:
    honest = [(FETCH, 4, 0)] * 50
    counted(page, honest)
    for first in range(0, 3000, 100):
        counted(page, [(API_VERSIONS, first + each, 35) for each in range(100)])
    reading = counted(page, honest)
    assert reading.tables["requests"][FETCH, 4] == 100
    assert sum(reading.tables["requests"].values()) == 3100
