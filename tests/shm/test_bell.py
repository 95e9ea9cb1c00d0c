"""Bells: no ring is lost, surplus rings are consumed together, signals wake."""

import os
import secrets
import select
import signal
import threading
from collections.abc import Iterator

import posix_ipc
import pytest

from rotunda.shm.rings.bell import EventBell, SemaphoreBell
from tests.support.deadline import deadline_s


@pytest.fixture
def semaphore() -> Iterator[posix_ipc.Semaphore]:
    """Yield a semaphore with a unique name."""
    made = posix_ipc.Semaphore(f"/rotundatest-{secrets.token_hex(8)}", posix_ipc.O_CREX)
    yield made
    bell = SemaphoreBell(made)
    bell.unlink()
    bell.close()


def test_a_ring_before_the_wait_is_not_lost(semaphore: posix_ipc.Semaphore) -> None:
    bell = SemaphoreBell(semaphore)
    bell.ring()
    assert bell.wait(0) is True
    assert bell.wait(0) is False


def test_one_wait_takes_all_rings(semaphore: posix_ipc.Semaphore) -> None:
    bell = SemaphoreBell(semaphore)
    for _ in range(100):
        bell.ring()
    assert bell.wait(None) is True
    assert semaphore.value == 0


def test_taking_rings_does_not_sleep_and_returns_whether_there_were_any(semaphore: posix_ipc.Semaphore) -> None:
    bell = SemaphoreBell(semaphore)
    assert bell.take() is False
    for _ in range(3):
        bell.ring()
    assert bell.take() is True
    assert semaphore.value == 0


def test_taking_rings_is_bounded(semaphore: posix_ipc.Semaphore) -> None:
    bell = SemaphoreBell(semaphore)
    for _ in range(3000):
        bell.ring()
    assert bell.wait(None) is True
    assert 0 < semaphore.value < 3000


def test_timeout_is_false(semaphore: posix_ipc.Semaphore) -> None:
    assert SemaphoreBell(semaphore).wait(0.001) is False


def test_ringing_a_full_semaphore_is_harmless() -> None:
    name = f"/rotundatest-{secrets.token_hex(8)}"
    most = (1 << 31) - 1
    semaphore = posix_ipc.Semaphore(name, posix_ipc.O_CREX, initial_value=most)
    bell = SemaphoreBell(semaphore)
    try:
        bell.ring()
        assert semaphore.value == most
        assert bell.wait(0) is True
    finally:
        bell.unlink()
        bell.unlink()


def test_a_signal_wakes_the_waiter(semaphore: posix_ipc.Semaphore) -> None:
    arrived: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _frame: arrived.append(number))
    woken = threading.Event()

    def send() -> None:
        while not woken.wait(0.01):
            os.kill(os.getpid(), signal.SIGUSR1)

    sender = threading.Thread(target=send)
    try:
        sender.start()
        assert SemaphoreBell(semaphore).wait(deadline_s()) is True
    finally:
        woken.set()
        sender.join()
        signal.signal(signal.SIGUSR1, before)
    assert set(arrived) == {signal.SIGUSR1}


def test_event_bell_is_readable_until_drained() -> None:
    bell = EventBell()
    with select.epoll() as poll:
        poll.register(bell.fileno(), select.EPOLLIN)
        assert poll.poll(0) == []
        bell.ring()
        bell.ring()
        assert poll.poll(0) == [(bell.fileno(), select.EPOLLIN)]
        bell.drain()
        assert poll.poll(0) == []
        bell.drain()
    bell.close()


def test_ringing_a_full_event_bell_is_harmless() -> None:
    bell = EventBell()
    os.eventfd_write(bell.fileno(), (1 << 64) - 2)
    bell.ring()
    assert os.eventfd_read(bell.fileno()) == (1 << 64) - 2
    bell.close()


def test_event_bell_crosses_a_fork() -> None:
    bell = EventBell()
    child = os.fork()
    if child == 0:
        bell.ring()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert os.eventfd_read(bell.fileno()) == 1
    bell.close()
