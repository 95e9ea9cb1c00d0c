"""The journal: the faults injected into the broker, with time and process.

Every fault is a window of time on the clock that all processes of the machine share, so that a pause or a closed
connection can be attributed to it. It is written as a file of JSON lines next to the broker's log.
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass
class Window:
    """An action: on one process (`pid`), or on the whole broker (0). Times are monotonic seconds."""

    action: str
    begin: float
    end: float
    pid: int = 0
    role: str = ""
    detail: str = ""

    def touches(self, begin: float, end: float) -> bool:
        return self.begin <= end and begin <= self.end


class Journal:
    """All actions so far. Any thread may write."""

    def __init__(self, path: Path) -> None:
        self.windows: list[Window] = []
        self.counts: Counter[str] = Counter()
        self._path = path
        self._lock = threading.Lock()

    @contextmanager
    def window(self, action: str, *, pid: int = 0, role: str = "", detail: str = "") -> Iterator[Window]:
        """Note the action of the block, from its begin to its end; a failed one is not counted."""
        window = Window(action, time.monotonic(), float("inf"), pid, role, detail)
        with self._lock:
            self.windows.append(window)
        try:
            yield window
        except BaseException:
            window.action = f"{action} (failed)"
            raise
        finally:
            window.end = time.monotonic()
            with self._lock:
                self.counts[f"{window.action} {role}".strip()] += 1
                with self._path.open("a") as file:
                    file.write(json.dumps(asdict(window)) + "\n")

    def note(self, action: str, *, pid: int = 0, role: str = "", detail: str = "") -> None:
        with self.window(action, pid=pid, role=role, detail=detail):
            pass

    def during(self, begin: float, end: float) -> list[Window]:
        with self._lock:
            return [window for window in self.windows if window.touches(begin, end)]
