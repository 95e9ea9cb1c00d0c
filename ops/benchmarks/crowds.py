"""Many connections: idle ones, slow ones, and ones that are opened and closed in quick succession.

Clients use several addresses of the loopback network, because one address has too few ports while closed connections
still occupy theirs.
"""

import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle

from ops.broker import Broker, ProgramError

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


@contextmanager
def silent(port: int, count: int) -> Iterator[list[socket.socket]]:
    """Open this many idle connections inside the `with`."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < count + _OTHER_DESCRIPTORS:
        raise ProgramError(f"{count} connections need as many descriptors: raise ulimit -n")
    sources = cycle(f"127.0.0.{host}" for host in range(2, 3 + count // _OF_AN_ADDRESS))
    crowd = []
    for number in range(count):
        if number % _AT_ONCE == 0:
            time.sleep(_PAUSE_SECONDS)
        crowd.append(socket.create_connection(("127.0.0.1", port), source_address=(next(sources), 0)))
    try:
        time.sleep(_SETTLE_SECONDS)
        yield crowd
    finally:
        for each in crowd:
            each.close()
        time.sleep(_SETTLE_SECONDS)


@contextmanager
def dripping(port: int, count: int) -> Iterator[None]:
    """Open this many connections that send a byte a second inside the `with`."""
    stopped = threading.Event()
    with silent(port, count) as crowd:
        thread = threading.Thread(target=_drip, args=(crowd, stopped))
        thread.start()
        try:
            time.sleep(_SETTLE_SECONDS)
            yield
        finally:
            stopped.set()
            thread.join()


def _drip(crowd: list[socket.socket], stopped: threading.Event) -> None:
    sent = 0
    while not stopped.is_set():
        begin = time.monotonic()
        for number, each in enumerate(crowd, 1):
            each.send(_DRIPPED[sent : sent + 1])
            # Spread over the second: a wave of all of them at once is another question.
            ahead = number / len(crowd) * _DRIP_SECONDS - (time.monotonic() - begin)
            if ahead > 0.001:
                stopped.wait(ahead)
        sent = (sent + 1) % len(_DRIPPED)


def memory_of_a_connection(running: Broker, count: int) -> float:
    """Return the KB of the broker's memory (PSS) per connection, with this many silent connections."""
    with silent(running.port, 1):
        before = running.memory().total()
    with silent(running.port, count):
        return (running.memory().total() - before) / 1024 / count


def come_and_go(running: Broker, per_second: int, seconds: float) -> tuple[int, int]:
    """Open and close this many connections a second; return their number, and the descriptors left open."""
    before = running.descriptors()
    begin, made = time.monotonic(), 0
    sources = cycle(f"127.0.0.{host}" for host in range(2, 12))
    while (passed := time.monotonic() - begin) < seconds:
        while made < passed * per_second:
            socket.create_connection(("127.0.0.1", running.port), source_address=(next(sources), 0)).close()
            made += 1
        time.sleep(0.001)
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while (left := running.descriptors() - before) > 0 and time.monotonic() < deadline:
        time.sleep(0.1)
    return made, max(0, left)
