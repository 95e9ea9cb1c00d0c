"""Makes readings while there are viewers: one a second, shared by all, and none otherwise.

All viewers get the same snapshot, encoded once for each screen. Rates are means over `WINDOW_NS`: processes update
their counters every half second, so shorter windows would show that rhythm and not the load.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from rotunda.web.facts.snapshot import snapshot

if TYPE_CHECKING:
    from rotunda.web.facts.readings import Reader, Reading
    from rotunda.web.facts.status import Snapshot
    from rotunda.web.http.room import Room
    from rotunda.web.sources import Sources

INTERVAL_S = 1.0
WINDOW_NS = 4_000_000_000

#: A reading is reused for this long; readings older than `STALE_NS` are not used for rates.
FRESH_NS = 900_000_000
STALE_NS = 15_000_000_000

View = Callable[["Snapshot", "Reading"], dict[str, Any]]


class TooManyStreams(Exception):  # noqa: N818  named for what is the case
    """The limit of streams is reached."""


class Watch:
    """The readings, and the streams that wait for the next one."""

    def __init__(self, sources: Sources, reader: Reader, room: Room) -> None:
        self._sources = sources
        self._reader = reader
        self._room = room
        self._readings: deque[Reading] = deque()
        self._snapshot: Snapshot | None = None
        self._rendered: dict[Callable[[Snapshot, Reading], Any], str] = {}
        self._streams = 0
        self._next: asyncio.Future[None] | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._closing = False

    def latest(self) -> tuple[Snapshot, Reading]:
        """Return the present snapshot and reading, at most a second old."""
        now_ns = time.monotonic_ns()
        if self._snapshot is None or now_ns - self._readings[-1].time_ns > FRESH_NS:
            self._read(now_ns)
        assert self._snapshot is not None  # noqa: S101 - just made
        return self._snapshot, self._readings[-1]

    def look(self, for_ns: int) -> None:
        """Request on-demand data from processes for this long."""
        self._reader.look(for_ns)

    def show(self, view: View) -> str:
        """Return a view's present data as JSON; encoded once for all viewers."""
        latest = self.latest()
        found = self._rendered.get(view)
        if found is None:
            found = self._rendered[view] = json.dumps(view(*latest), separators=(",", ":"))
        return found

    def text(self, render: Callable[[Snapshot, Reading], str]) -> str:
        """Return a function's text of the present reading; rendered once for all viewers."""
        latest = self.latest()
        found = self._rendered.get(render)
        if found is None:
            found = self._rendered[render] = render(*latest)
        return found

    async def follow(self, view: View) -> AsyncIterator[str]:
        """Yield a view's data, now and with each reading. Raises TooManyStreams before the first value."""
        if not self._room.open_stream():
            raise TooManyStreams
        self._streams += 1
        try:
            while not self._closing:
                yield self.show(view)
                await self._wait()
        finally:
            self._streams -= 1
            self._room.close_stream()

    def close(self) -> None:
        """End every stream."""
        self._closing = True
        if self._next is not None and not self._next.done():
            self._next.set_result(None)

    async def _wait(self) -> None:
        if self._closing:
            return
        if self._ticking is None or self._ticking.done():
            self._ticking = asyncio.get_running_loop().create_task(self._tick())
        if self._next is None or self._next.done():
            self._next = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._next)

    async def _tick(self) -> None:
        """Make a reading a second while there is a stream."""
        while self._streams and not self._closing:
            await asyncio.sleep(INTERVAL_S)
            self._read(time.monotonic_ns())
            if self._next is not None and not self._next.done():
                self._next.set_result(None)

    def _read(self, now_ns: int) -> None:
        readings = self._readings
        while readings and now_ns - readings[0].time_ns > STALE_NS:
            readings.popleft()
        readings.append(self._reader.read())
        # The oldest one that is still within the window, or the one before this.
        while len(readings) > 2 and now_ns - readings[1].time_ns >= WINDOW_NS:
            readings.popleft()
        earlier = readings[0] if len(readings) > 1 else None
        self._snapshot = snapshot(earlier, readings[-1], self._sources)
        self._rendered.clear()
