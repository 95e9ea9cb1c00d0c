"""Browsers with open screens of the status page: each reads its stream of events and discards it."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from ops.broker import ProgramError

SCREENS = ("overview", "clients", "topics", "groups", "requests", "processes", "configuration")
RECEIVE_BYTES = 1 << 18
WARM_UP_SECONDS = 1.0
#: Time for which processes go on publishing watch-only facts after the last browser has left.
FORGET_SECONDS = 6.0


@contextmanager
def browsers(url: str, count: int) -> Iterator[None]:
    """Open this many screens inside the `with`; afterwards wait until the broker has stopped publishing for them.

    Raises ProgramError when no events arrived.
    """
    address = urlsplit(url)
    streams = [socket.create_connection((address.hostname, address.port)) for _ in range(count)]
    received = [0] * count

    def read(number: int) -> None:
        while found := streams[number].recv(RECEIVE_BYTES):
            received[number] += len(found)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(count)]
    for number, stream in enumerate(streams):
        screen = SCREENS[number % len(SCREENS)]
        stream.sendall(f"GET /events/{screen} HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode())
        threads[number].start()
    try:
        time.sleep(WARM_UP_SECONDS)
        yield
    finally:
        for stream, thread in zip(streams, threads, strict=True):
            with suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)
            thread.join()
            stream.close()
        time.sleep(FORGET_SECONDS)
    if not any(received):
        raise ProgramError("the status page sent no events")
