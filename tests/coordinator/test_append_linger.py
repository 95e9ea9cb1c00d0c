"""CommitBatcher: commits of few clients are written immediately, those of many wait for the end of their window."""

import pytest

from rotunda.broker.coordinator.coordinator_log import MANY_CONNECTIONS, CommitBatcher

MS = 1_000_000


def commit(linger: CommitBatcher, connections: int) -> None:
    for connection in range(connections):
        linger.connections.add(connection)


def test_few_never_wait_however_often_they_commit() -> None:
    linger = CommitBatcher(lambda: 5)
    for now_ms in range(100):
        linger.run_once(now_ms * MS)
        assert linger.is_over
        for _ in range(1000):
            commit(linger, MANY_CONNECTIONS - 1)


def test_after_many_the_next_window_collects_until_there_are_few() -> None:
    linger = CommitBatcher(lambda: 5)
    linger.run_once(100 * MS)
    commit(linger, MANY_CONNECTIONS)
    linger.run_once(104 * MS)
    assert linger.is_over, "no wait before there are many commits"
    linger.run_once(105 * MS)
    assert linger.is_over, "a window's end"
    commit(linger, MANY_CONNECTIONS - 1)
    for now_ms in (106, 109):
        linger.run_once(now_ms * MS)
        assert not linger.is_over
    assert linger.end_ns == 110 * MS
    linger.run_once(110 * MS)
    assert linger.is_over
    linger.run_once(111 * MS)
    assert linger.is_over, "they were few in the window before"


@pytest.mark.parametrize("linger_ms", [0, -1])
def test_without_a_length_nothing_waits(linger_ms: int) -> None:
    linger = CommitBatcher(lambda: linger_ms)
    for now_ms in range(10):
        linger.run_once(now_ms * MS)
        commit(linger, 1000)
        assert linger.is_over
