"""The limits of the page's connections: which are dropped, and when."""

import pytest

from rotunda.shm.metrics.process_metrics import MetricsSegment, MetricsWriter
from rotunda.shm.tables.process_slots import WEB
from rotunda.web.http import room as module
from rotunda.web.http.room import Limits, Room


class Visitor:
    """Replaces a connection."""

    def __init__(self) -> None:
        self.unread_bytes = 0
        self.dropped = False

    def drop(self) -> None:
        self.dropped = True


class Clock:
    """Seconds that the test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    """Return the time."""
    return Clock()


@pytest.fixture
def metrics() -> MetricsWriter:
    """Return the page of the web process."""
    segment = MetricsSegment(memoryview(bytearray(MetricsSegment.bytes_needed(1, 1))), 1, 1)
    segment.initialise()
    return MetricsWriter(segment.page(WEB, 0))


@pytest.fixture
def lines() -> list[str]:
    """Return the log lines."""
    return []


@pytest.fixture
def room(clock: Clock, metrics: MetricsWriter, lines: list[str]) -> Room:
    """Return a room of three places and one stream; requests and responses have ten seconds."""

    def warn(_key: str, message: str, *values: object) -> bool:
        lines.append(message % values)
        return True

    return Room(Limits(connections=3, streams=1, timeout_s=10), metrics, warn, clock)


def enter(room: Room, count: int) -> list[Visitor]:
    """Add so many connections."""
    visitors = [Visitor() for _ in range(count)]
    for each in visitors:
        room.enter(each)
    return visitors


def test_the_oldest_that_waits_makes_room(room: Room, metrics: MetricsWriter, lines: list[str]):
    first, second, third = enter(room, 3)
    room.serve(first)
    enter(room, 1)
    assert (first.dropped, second.dropped, third.dropped) == (False, True, False)
    assert metrics.words[metrics.index("connections")] == 3
    assert metrics.words[metrics.index("connections_dropped", "no_room")] == 1
    assert lines == ["the status page holds 3 connections (status.max.connections); the oldest go"]


def test_a_slow_reader_makes_room_before_whoever_is_served(room: Room):
    first, second, third = enter(room, 3)
    for each in (first, second, third):
        room.serve(each)
    room.block(second)
    enter(room, 1)
    assert (first.dropped, second.dropped, third.dropped) == (False, True, False)


def test_a_request_has_its_time_and_a_silent_connection_three_times_that(room: Room, clock: Clock):
    slow, silent = enter(room, 2)
    room.serve(silent)
    room.await_request(silent)
    clock.now_s += 9.9
    room.sweep()
    assert not slow.dropped
    clock.now_s += 0.1
    room.sweep()
    assert slow.dropped
    clock.now_s += 19.9
    room.sweep()
    assert not silent.dropped
    clock.now_s += 0.1
    room.sweep()
    assert silent.dropped


def test_a_response_under_way_has_no_deadline_while_it_is_read(room: Room, clock: Clock):
    [reader] = enter(room, 1)
    room.serve(reader)
    reader.unread_bytes = 1_000_000
    room.block(reader)
    for _ in range(5):
        clock.now_s += 10
        reader.unread_bytes -= module.LEAST_READ_BYTES
        room.sweep()
        assert not reader.dropped
    clock.now_s += 10
    room.sweep()
    assert reader.dropped


def test_who_has_caught_up_is_not_slow(room: Room, clock: Clock):
    [reader] = enter(room, 1)
    room.serve(reader)
    room.block(reader)
    room.unblock(reader)
    clock.now_s += 100
    room.sweep()
    assert not reader.dropped


def test_responses_that_wait_have_a_bound_together(room: Room, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MOST_UNREAD_BYTES", 1000)
    first, second = enter(room, 2)
    for each in (first, second):
        room.serve(each)
        each.unread_bytes = 600
        room.block(each)
    assert (first.dropped, second.dropped) == (True, False)


def test_streams_are_counted(room: Room, metrics: MetricsWriter):
    assert room.open_stream()
    assert not room.open_stream()
    assert metrics.words[metrics.index("streams_refused")] == 1
    room.close_stream()
    assert room.open_stream()


def test_who_left_takes_no_place(room: Room, clock: Clock):
    visitors = enter(room, 3)
    for each in visitors:
        room.leave(each)
        room.await_request(each)
    others = enter(room, 3)
    clock.now_s += 1
    room.sweep()
    assert not any(each.dropped for each in (*visitors, *others))
