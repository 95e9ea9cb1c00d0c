"""The broker that a client is run against: one of our own, whose handlers can be killed meanwhile, or an address."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ops.broker import Broker, send


@dataclass(frozen=True)
class Target:
    """The address; of a broker of our own also its data and its processes."""

    bootstrap: str
    data_dir: Path | None = None
    broker: Broker | None = None


@contextmanager
def handlers_dying(broker: Broker, every_seconds: float) -> Iterator[None]:
    """Kill one handler after the other as long as the block runs."""
    ended = threading.Event()

    def kill() -> None:
        turn = 0
        while not ended.wait(every_seconds):
            handlers = broker.processes()["handler"]
            if handlers:
                send(handlers[turn % len(handlers)], signal.SIGKILL)
            turn += 1

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
