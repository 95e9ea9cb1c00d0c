"""Daemon threads that no exit waits for: they run calls up to their number, in order, and return the outcomes."""

from __future__ import annotations

import threading

import pytest

from rotunda.broker.client.producer.asyncio_producer import DaemonThreads
from tests.support.deadline import deadline_s


def test_outcomes_are_returned_and_further_calls_wait_for_a_thread() -> None:
    threads = DaemonThreads(2, "calls of a test")
    go = threading.Event()
    waiting = [threads.submit(go.wait, deadline_s()) for _ in range(2)]
    following = threads.submit(lambda: threading.current_thread().daemon)
    assert not following.done()
    go.set()
    assert [each.result(deadline_s()) for each in waiting] == [True, True]
    assert following.result(deadline_s()) is True
    assert isinstance(threads.submit(int, "none").exception(deadline_s()), ValueError)
    names = {thread.name for thread in threading.enumerate() if thread.name.startswith("calls of a test")}
    assert len(names) == 2


def test_a_call_that_is_cancelled_before_it_begins_is_not_made() -> None:
    threads = DaemonThreads(1, "calls of another")
    go, called = threading.Event(), threading.Event()
    threads.submit(go.wait, deadline_s())
    cancelled = threads.submit(called.set)
    assert cancelled.cancel()
    go.set()
    assert threads.submit(called.is_set).result(deadline_s()) is False


def test_threads_end_after_all_their_calls() -> None:
    threads = DaemonThreads(3, "calls of a third")
    done = [threads.submit(threading.current_thread) for _ in range(5)]
    threads.end()
    for each in done:
        thread = each.result(deadline_s())
        thread.join(deadline_s())
        assert not thread.is_alive()
    with pytest.raises(RuntimeError, match="have ended"):
        threads.submit(int)
