"""Steps in a thread: result, exception, and the caller's wait."""

import threading

import pytest

from rotunda.broker.records.compression import compress, unpacked
from rotunda.broker.records.record_batch import CODECS
from rotunda.broker.steps import beside, finished
from tests.support.deadline import deadline_s

#: Its unpacked size is large, its packed size small.
LARGE = bytes(range(256)) * (36 << 12)


def test_other_tasks_run_while_a_thread_works() -> None:
    may_end = threading.Event()
    steps = beside(lambda: may_end.wait(deadline_s()))
    for _ in range(5):
        next(steps)
    may_end.set()
    assert finished(steps) is True


def test_an_exception_is_raised_by_the_steps() -> None:
    with pytest.raises(ZeroDivisionError):
        finished(beside(lambda: 1 // 0))


def test_a_closed_task_waits_for_its_thread() -> None:
    """The thread reads the caller's memory."""
    may_end, ended = threading.Event(), threading.Event()

    def work() -> None:
        may_end.wait(deadline_s())
        ended.set()

    steps = beside(work)
    next(steps)
    may_end.set()
    steps.close()
    assert ended.is_set()


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_large_batch_is_unpacked_by_a_thread(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = compress(CODECS.index(codec), LARGE)
    threads = []
    real = threading.Thread.start

    def started(thread: threading.Thread) -> None:
        threads.append(thread.name)
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", started)
    assert bytes(finished(unpacked(CODECS.index(codec), packed, 2 * len(LARGE)))) == LARGE
    assert "beside" in threads
