"""The load: replays a profile's connections and requests at their recorded times, in one event loop.

Runs in the command line's process. A request is sent when due, regardless of pending responses; only a Fetch waits for
the response to its connection's previous Fetch, as in consumers. Late requests are sent anyway, and their delay is
counted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from rotunda.broker.bench.profile import CLOSE, OPEN, REQUEST, Event
from rotunda.broker.bench.requests import KINDS, Positions, RequestMaker
from rotunda.broker.bench.tally import Tallies
from rotunda.broker.clock import Clock
from rotunda.broker.errors import InvalidReceive
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.schema.marks import error_paths, values_at
from rotunda.broker.records.record_batch import batch_headers

_RESPONSE_S: Final = 30.0
_NS_OF_US: Final = 1_000
_S: Final = 1_000_000_000
_LOST: Final = (OSError, EOFError, InvalidReceive, asyncio.IncompleteReadError)

Ranges = Mapping[int, tuple[int, int]]


class Sent(NamedTuple):
    """A request in flight."""

    event: Event
    version: int
    correlation_id: int
    sent_ns: int


class Load:
    """All connections of a profile. `ranges` are the versions that the broker supports, by API."""

    def __init__(
        self, address: tuple[str, int], maker: RequestMaker, ranges: Ranges, clock: Clock, speed: float
    ) -> None:
        self.address = address
        self._maker = maker
        self.clock = clock
        self._ranges = ranges
        self._speed = speed
        self._start_ns = 0

    async def run(self, events: Iterable[Event], tallies: Tallies) -> float:
        """Send all requests, wait for their responses, and return the duration in seconds."""
        by_connection: dict[int, list[Event]] = {}
        for event in events:
            by_connection.setdefault(event.connection, []).append(event)
        self._prepare(event for of_one in by_connection.values() for event in of_one)
        connections = [LoadConnection(self, tallies, of_one) for of_one in by_connection.values()]
        # Connections that were open at the start of the profile are opened before the clock starts.
        await asyncio.gather(*(each.open() for each in connections if not each.is_opened_later))
        self._start_ns = self.clock.monotonic_ns()
        await asyncio.gather(*(each.run() for each in connections))
        return (self.clock.monotonic_ns() - self._start_ns) / _S

    def _prepare(self, events: Iterable[Event]) -> None:
        """Compile the codecs before the clock starts."""
        for event in {(each.requestApiKey, each.requestApiVersion): each for each in events}.values():
            frame, version = self.frame(event, {}, 0)
            if frame is not None:
                codec.response_reader(event.requestApiKey or 0, version)

    def frame(self, event: Event, positions: Positions, correlation_id: int) -> tuple[bytes | None, int]:
        """Return a request and its version; None if it is skipped."""
        fields = self._maker.fields(event, positions)
        api_key = -1 if event.requestApiKey is None else event.requestApiKey
        version = None if fields is None else self._version_of(api_key, event.requestApiVersion or 0)
        if fields is None or version is None:
            return None, -1
        return codec.encode_request(api_key, version, correlation_id, event.clientId or "", fields), version

    async def until(self, at_us: int) -> int:
        """Wait until a time of the profile; return the delay in microseconds."""
        due_ns = self._start_ns + int(at_us * _NS_OF_US / self._speed)
        left_ns = due_ns - self.clock.monotonic_ns()
        await asyncio.sleep(max(left_ns, 0) / _S)
        return max(0, self.clock.monotonic_ns() - due_ns) // _NS_OF_US

    def _version_of(self, api_key: int, recorded: int) -> int | None:
        """Return the recorded version, or the nearest common one; None if there is none."""
        lowest, highest = self._ranges.get(api_key, (0, -1))
        version = min(max(recorded, lowest), highest, KINDS[api_key].newest)
        return version if lowest <= version <= highest else None


class LoadConnection:
    """One connection of the profile and its events, in order."""

    def __init__(self, load: Load, tallies: Tallies, events: list[Event]) -> None:
        self._load = load
        self._tallies = tallies
        self._events = events
        self._waiting: deque[Sent] = deque()
        self._positions: Positions = {}
        self._correlation_id = 0
        self._is_lost = False
        self._may_fetch = asyncio.Event()
        self._all_received = asyncio.Event()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def is_opened_later(self) -> bool:
        """Whether the profile has its open event."""
        return self._events[0].event == OPEN

    async def open(self) -> None:
        """Connect."""
        self._may_fetch.set()
        self._all_received.set()
        try:
            self._streams = await asyncio.open_connection(*self._load.address)
        except OSError:
            self._lose()
            return
        self._tallies.connections += 1
        self._reading = asyncio.create_task(self._read(self._streams[0]))

    async def run(self) -> None:
        """Replay the connection's events, then close it."""
        for event in self._events:
            late_us = await self._load.until(event.atUs)
            if event.event == OPEN:
                await self.open()
            elif event.event == CLOSE:
                break
            elif event.event == REQUEST:
                for _ in range(event.repeat):
                    await self._send(event, late_us)
        await self._close()

    async def _send(self, event: Event, late_us: int) -> None:
        tally = self._tallies.of(event)
        is_fetch = event.requestApiKey == ApiKey.FETCH
        if is_fetch:
            await self._may_fetch.wait()
        self._correlation_id += 1
        frame, version = self._load.frame(event, self._positions, self._correlation_id)
        if frame is None or self._streams is None or self._is_lost:
            tally.left_out += frame is None
            return
        sent_ns = self._load.clock.monotonic_ns()
        if event.requestApiKey != ApiKey.PRODUCE or event.acks != 0:
            self._waiting.append(Sent(event, version, self._correlation_id, sent_ns))
            self._all_received.clear()
        if is_fetch:
            self._may_fetch.clear()
        writer = self._streams[1]
        with suppress(OSError):
            writer.write(frame)
            await writer.drain()
        tally.sent += 1
        tally.sent_bytes += len(frame) - 4
        self._tallies.late_us.append(late_us)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                self._receive(await reader.readexactly(size))
        except _LOST:
            self._lose()

    def _receive(self, response: bytes) -> None:
        sent = self._waiting.popleft() if self._waiting else None
        if sent is None or int.from_bytes(response[:4], "big") != sent.correlation_id:
            raise InvalidReceive("an answer to another request")
        tally = self._tallies.of(sent.event)
        tally.received += 1
        tally.received_bytes += len(response) + 4
        tally.response_us.append((self._load.clock.monotonic_ns() - sent.sent_ns) // _NS_OF_US)
        api_key = ApiKey(sent.event.requestApiKey or 0)
        decoded = codec.decode_response(api_key, sent.version, memoryview(response), 0, len(response))
        tally.errors += any(code for path in error_paths(api_key) for code in values_at(decoded, path))
        if api_key == ApiKey.FETCH:
            self._advance(sent.event, decoded)
            self._may_fetch.set()
        if not self._waiting:
            self._all_received.set()

    def _advance(self, event: Event, response: Any) -> None:
        """Record the connection's read positions."""
        for topic in response.responses:
            for part in topic.partitions:
                for _, header in batch_headers(part.records or b""):
                    place = (str(event.topic), int(part.partition_index))
                    self._positions[place] = header.base_offset + header.last_offset_delta + 1

    async def _close(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._all_received.wait(), _RESPONSE_S)
        if self._reading is not None:
            self._reading.cancel()
        if self._streams is not None:
            self._streams[1].close()
            with suppress(OSError):
                await self._streams[1].wait_closed()

    def _lose(self) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._tallies.lost_connections += 1
        # Wake all waiters: no more responses will arrive.
        self._may_fetch.set()
        self._all_received.set()
