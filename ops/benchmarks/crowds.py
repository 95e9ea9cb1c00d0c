"""The cost of many connections: idle ones, slow ones, and ones that are opened and closed in quick succession.

Each crowd is compared with the same broker without it: memory per connection, small Produce during it, tail latency of
a normal client, open descriptors after its end. Clients use several addresses of the loopback network, because one
address has too few ports while closed connections still occupy theirs.
"""

import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import NamedTuple

from ops.benchmarks import idle, programs

#: As many connections have one source address.
_OF_AN_ADDRESS = 5000
#: Other open descriptors of this process.
_OTHER_DESCRIPTORS = 100
#: The kernel drops connections that overflow the backlog; their clients retry a second later.
_AT_ONCE, _PAUSE_SECONDS = 20, 0.01
_SETTLE_SECONDS = 3.0
_DEADLINE_SECONDS = 60.0
#: The begin of a request that never ends: one of 1,000 bytes is sent each second.
_DRIPPED = (1000).to_bytes(4, "big") + bytes(1000)
_DRIP_SECONDS = 1.0


class Crowd(NamedTuple):
    """Figures of a broker with a crowd and without."""

    beside: float
    alone: float


def connect(port: int, count: int) -> list[socket.socket]:
    """Return this many connections."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < count + _OTHER_DESCRIPTORS:
        raise programs.MeasurementError(f"{count} connections need as many descriptors: raise ulimit -n")
    sources = cycle(f"127.0.0.{host}" for host in range(2, 3 + count // _OF_AN_ADDRESS))
    crowd = []
    for number in range(count):
        if number % _AT_ONCE == 0:
            time.sleep(_PAUSE_SECONDS)
        crowd.append(socket.create_connection(("127.0.0.1", port), source_address=(next(sources), 0)))
    return crowd


@contextmanager
def silent(port: int, count: int) -> Iterator[None]:
    """Open this many idle connections inside the `with`."""
    crowd = connect(port, count)
    try:
        time.sleep(_SETTLE_SECONDS)
        yield
    finally:
        for each in crowd:
            each.close()
        time.sleep(_SETTLE_SECONDS)


@contextmanager
def dripping(port: int, count: int) -> Iterator[None]:
    """Open this many connections that send a byte a second inside the `with`."""
    crowd, stopped = connect(port, count), threading.Event()

    def drip() -> None:
        sent = 0
        while not stopped.is_set():
            begin = time.monotonic()
            for number, each in enumerate(crowd, 1):
                each.send(_DRIPPED[sent : sent + 1])
                # Spread over the second: a wave of all of them at once is another question.
                ahead = number / count * _DRIP_SECONDS - (time.monotonic() - begin)
                if ahead > 0.001:
                    stopped.wait(ahead)
            sent = (sent + 1) % len(_DRIPPED)

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        time.sleep(_SETTLE_SECONDS)
        yield
    finally:
        stopped.set()
        thread.join()
        for each in crowd:
            each.close()
        time.sleep(_SETTLE_SECONDS)


def memory_of_a_connection(running: programs.RunningBroker, count: int) -> float:
    """Return the KB of the broker's memory (PSS) per connection, with this many silent connections."""
    pids = running.pids()
    with silent(running.port, 1):
        before_mb = idle.memory_mb(pids)
    with silent(running.port, count):
        return (idle.memory_mb(pids) - before_mb) * 1024 / count


def in_turns(crowd: Callable[[], AbstractContextManager[None]], measure: Callable[[], float], turns: int) -> Crowd:
    """Return the median of a figure with a crowd and without, measured alternately."""
    beside, alone = [], []
    for _ in range(turns):
        alone.append(measure())
        with crowd():
            beside.append(measure())
    return Crowd(median(beside), median(alone))


def come_and_go(running: programs.RunningBroker, per_second: int, seconds: float) -> tuple[int, int]:
    """Open and close this many connections a second; return their number, and the descriptors left open."""
    pids = running.pids()
    before = _descriptors(pids)
    begin, made = time.monotonic(), 0
    sources = cycle(f"127.0.0.{host}" for host in range(2, 12))
    while (passed := time.monotonic() - begin) < seconds:
        while made < passed * per_second:
            socket.create_connection(("127.0.0.1", running.port), source_address=(next(sources), 0)).close()
            made += 1
        time.sleep(0.001)
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while (left := _descriptors(pids) - before) > 0 and time.monotonic() < deadline:
        time.sleep(0.1)
    return made, max(0, left)


def _descriptors(pids: tuple[int, ...]) -> int:
    return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids)
