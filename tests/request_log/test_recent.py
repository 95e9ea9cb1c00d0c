"""The cache of recent requests: the newest, the slowest, and the activity of each connection."""

import json
from typing import Any

import numpy as np
import pytest

from rotunda.broker.ipc import connection_id
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.request_log.names import Clients
from rotunda.broker.request_log.recent import INTERVAL_NS, RecentRequests
from rotunda.shm.recorder_layout import CONNECTION_EVENT, REQUEST_ROW
from rotunda.shm.tables.recent_requests import (
    BYTES_NEEDED,
    NEWEST_ROWS,
    SLOWEST_ROWS,
    Recent,
    RecentReader,
    RecentWriter,
)
from tests.support.results import present

MS = 1_000_000


class OneTopic:
    """Replaces Subjects: every subject is a partition of one topic."""

    def name(self, subject: int) -> tuple[str, int]:
        return "orders", subject


class Keeper:
    """The collector with a clock of the test's own, and a reader of its snapshots."""

    def __init__(self) -> None:
        view = memoryview(bytearray(BYTES_NEEDED))
        self.reader = RecentReader(view)
        self.clients = Clients()
        self.recent = RecentRequests(RecentWriter(view), self.clients, OneTopic())  # type: ignore[arg-type]
        self.now_ns = 10 * INTERVAL_NS

    def learn(self, client: int, name: str) -> None:
        text = json.dumps([client, name, "lib", "1.0", "127.0.0.1", "PLAINTEXT", "PLAINTEXT", "User:ANONYMOUS"])
        self.clients.learn(client, text.encode())

    def add(self, client: int, durations_ms: list[float], api: int = ApiKey.PRODUCE, waited_ms: float = 0) -> None:
        rows = np.zeros(len(durations_ms), REQUEST_ROW.dtype)
        rows["client"], rows["api_key"], rows["api_version"], rows["weight"] = client, api, 9, 1
        rows["received_ns"] = self.now_ns - np.array(durations_ms) * MS
        rows["response_complete_ns"] = rows["received_ns"] + int(waited_ms * MS)
        rows["local_complete_ns"] = rows["received_ns"]
        rows["end_ns"] = self.now_ns
        self.recent.add_rows(rows, self.now_ns)

    def event(self, number: int, client: int, cause: int) -> None:
        events = np.zeros(1, CONNECTION_EVENT.dtype)
        events["connection_id"], events["client"], events["cause"] = number, client, cause
        self.recent.add_connections(events)

    def read(self) -> Recent:
        self.now_ns += INTERVAL_NS
        self.recent.publish(self.now_ns, 0)
        return present(self.reader.read())


@pytest.fixture
def keeper() -> Keeper:
    """Return a collector that has heard of one client."""
    made = Keeper()
    made.learn(1, "checkout")
    return made


def rows_of(packed: bytes) -> Any:
    return np.frombuffer(packed, REQUEST_ROW.dtype)


def durations_ms(packed: bytes) -> list[float]:
    rows = rows_of(packed)
    return [float(each) for each in (rows["end_ns"] - rows["received_ns"]) / MS]


def test_the_newest_rows_are_kept_in_order(keeper: Keeper):
    """Row 22."""
    for start in range(0, 2500, 700):
        keeper.add(1, [float(number) for number in range(start, start + 700)])
    assert durations_ms(keeper.read().newest) == [float(each) for each in range(2800 - NEWEST_ROWS, 2800)]


def test_the_slowest_are_kept_slowest_first(keeper: Keeper):
    """Row 22."""
    numbers = np.random.default_rng(5).permutation(3000)
    for part in np.array_split(numbers, 7):
        keeper.add(1, [float(each) for each in part])
    assert durations_ms(keeper.read().slowest) == [float(each) for each in range(2999, 2999 - SLOWEST_ROWS, -1)]


def test_waiting_for_data_makes_no_fetch_slow(keeper: Keeper):
    keeper.add(1, [500.0], ApiKey.FETCH, waited_ms=499)
    keeper.add(1, [20.0])
    assert durations_ms(keeper.read().slowest) == [20.0, 500.0]


def test_slow_requests_of_long_ago_go(keeper: Keeper):
    keeper.add(1, [500.0])
    keeper.now_ns += 601 * 1_000_000_000
    keeper.add(1, [20.0])
    assert durations_ms(keeper.read().slowest) == [20.0]


def test_connections_are_known_by_what_they_do(keeper: Keeper):
    """Row 5: the connections, and the activity of each. The first rows may precede the connection's own event."""
    keeper.add(1, [1.0, 1.0])
    keeper.event(1, 1, -1)
    keeper.add(1, [1.0], ApiKey.FETCH)
    [told] = keeper.read().names["connections"]
    assert told["names"][:2] == [connection_id.text(1), "checkout"]
    assert sorted(told["calls"]) == [[ApiKey.PRODUCE, 9, 2], [ApiKey.FETCH, 9, 1]]
    assert told["topics"] == ["orders"]
    keeper.event(1, 1, 0)
    assert keeper.read().names["connections"] == []


def test_many_rows_are_sampled_and_still_counted(keeper: Keeper):
    keeper.add(1, [1.0] * 10_000)
    [told] = keeper.read().names["connections"]
    assert told["calls"][0][2] == pytest.approx(10_000, rel=0.01)


def test_names_that_do_not_fit_are_left_out(keeper: Keeper):
    """Fewer connections and rows are published then, with the number of connections."""
    for number in range(2, 302):
        keeper.learn(number, "x" * 250)
        keeper.add(number, [1.0] * 4)
        keeper.recent.add_group_event({"group": "g" * 250, "reason": "r" * 500})
        keeper.event(number, number, -1)
    found = keeper.read()
    assert len(found.newest) > 10 * REQUEST_ROW.size
    assert len(found.slowest) == SLOWEST_ROWS * REQUEST_ROW.size
    assert found.names["connection_count"] == 300
    assert {str(each) for each in rows_of(found.newest)["client"]} <= set(found.names["clients"])


def test_nothing_new_is_not_published_again(keeper: Keeper):
    keeper.add(1, [1.0])
    first = keeper.read()
    assert keeper.recent.due_ns is None
    assert keeper.read().published_ns == first.published_ns
    keeper.add(1, [1.0])
    assert keeper.recent.due_ns is not None
