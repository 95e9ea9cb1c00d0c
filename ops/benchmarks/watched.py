"""The cost of the status page while twenty browsers watch it.

One broker under the same load in turns, with and without twenty open screens. The result is the processor time of all
processes except the page's own, which is listed separately. The cost of watching depends on the number of connections
and not on the rate: the load has many connections, and a rate low enough for the increase to show.
"""

import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from statistics import median
from typing import NamedTuple
from urllib.parse import urlsplit

from ops.benchmarks import idle, programs

SCREENS = ("overview", "clients", "topics", "groups", "requests", "processes", "configuration")

#: Time for which processes go on publishing watch-only facts after the last browser has left.
FORGET_SECONDS = 6.0
WARM_UP_SECONDS = 1.0


class Browsers:
    """Open screens of the status page: each reads its stream of events and discards it."""

    def __init__(self, url: str, count: int) -> None:
        address = urlsplit(url)
        self._selector = selectors.DefaultSelector()
        self._stopped = threading.Event()
        self.received_bytes = 0
        for number in range(count):
            stream = socket.create_connection((address.hostname, address.port))
            screen = SCREENS[number % len(SCREENS)]
            stream.sendall(f"GET /events/{screen} HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode())
            self._selector.register(stream, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close every screen. Raises MeasurementError when no events arrived."""
        self._stopped.set()
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        if not self.received_bytes:
            raise programs.MeasurementError("the status page told the browsers nothing")

    def _read(self) -> None:
        while not self._stopped.is_set():
            for key, _ in self._selector.select(0.2):
                found = key.fileobj.recv(1 << 18)  # type: ignore[union-attr]
                self.received_bytes += len(found)
                if not found:
                    self._selector.unregister(key.fileobj)


@contextmanager
def browsers(url: str, count: int) -> Iterator[None]:
    """Open this many screens inside the `with`; afterwards wait until the broker has stopped publishing for them."""
    opened = Browsers(url, count)
    try:
        time.sleep(WARM_UP_SECONDS)
        yield
    finally:
        opened.close()
        time.sleep(FORGET_SECONDS)


class Figures(NamedTuple):
    """Medians, in percent of a core: the broker with browsers and without, their difference, and the page's process."""

    watched: float
    alone: float
    added: float
    page: float


def measure(running: programs.RunningBroker, count: int, turns: int, load: Callable[[], object]) -> Figures:
    """Run the same load with this many browsers and without, alternately; each is first equally often."""
    status = running.status()
    with browsers(status["status_url"], count):
        # The page loads its framework with the first browser.
        load()
    page = tuple(int(each["pid"]) for each in status["processes"] if each["role"] == "web")
    broker = tuple(pid for pid in running.pids() if pid not in page)
    percents: tuple[list[float], list[float]] = ([], [])
    of_page = []
    for turn in range(turns):
        for watched in (0, 1) if turn % 2 else (1, 0):
            with browsers(status["status_url"], count) if watched else nullcontext():
                before_ns, page_before_ns, begin_ns = idle.cpu_ns(broker), idle.cpu_ns(page), time.monotonic_ns()
                load()
                took_ns = time.monotonic_ns() - begin_ns
                percents[watched].append(100 * (idle.cpu_ns(broker) - before_ns) / took_ns)
                if watched:
                    of_page.append(100 * (idle.cpu_ns(page) - page_before_ns) / took_ns)
        print(f"status page: {percents[1][-1]:.2f} against {percents[0][-1]:.2f} % of a core without", flush=True)
    added = median(mine - other for mine, other in zip(percents[1], percents[0], strict=True))
    return Figures(median(percents[1]), median(percents[0]), added, median(of_page))
