"""The producer load: sends records of a size to a topic, at a rate or at full speed, and measures latencies.

Modelled on kafka-producer-perf-test. Runs in the command line's process; any client library provides its own `send`
(`producer_clients`). A record's latency is from the call of `send` to its acknowledgement. At a given rate all records
are timed; at full speed one in a hundred, since a callback costs as much as a send.
"""

from __future__ import annotations

import asyncio
import random
import string
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from rotunda.broker.bench.tally import quantile_ms
from rotunda.broker.clock import Clock

#: Called with the error, or None.
Acknowledged = Callable[[object], None]

_NS_OF_S: Final = 1_000_000_000
_NS_OF_US: Final = 1_000
_US_OF_MS: Final = 1_000
_MEGABYTE: Final = 1 << 20
_TIMED_ONE_IN: Final = 100
_REPORT_S: Final = 5
_SHARES: Final = (0.5, 0.95, 0.99, 0.999)


class Plan(NamedTuple):
    """The load to send. `throughput` is records per second, 0 for full speed."""

    topic: str
    records: int
    record_bytes: int
    throughput: int = 0

    @property
    def timed_one_in(self) -> int:
        """One record out of this many is timed."""
        return 1 if self.throughput else _TIMED_ONE_IN

    def value(self) -> bytes:
        """Return the value of all records: letters, as sent by Kafka's tool."""
        return "".join(random.choices(string.ascii_uppercase, k=self.record_bytes)).encode()  # noqa: S311 - no secret


class LoadClient(Protocol):
    """A client library that sends the load."""

    def send(self, value: bytes, acknowledged: Acknowledged | None) -> None:
        """Send a record."""

    def flush(self) -> None:
        """Wait until all records are acknowledged."""

    def close(self) -> None:
        """Close the client."""


class AsyncLoadClient(Protocol):
    """The same for an asyncio library."""

    async def start(self) -> None:
        """Connect."""

    async def send(self, value: bytes, acknowledged: Acknowledged | None) -> None:
        """Send a record."""

    async def flush(self) -> None:
        """Wait until all records are acknowledged."""

    async def close(self) -> None:
        """Close the client."""


@dataclass
class Figures:
    """The results of a load so far."""

    plan: Plan
    start_ns: int
    sent: int = 0
    duration_s: float = 0.0
    latencies_us: list[int] = field(default_factory=list)
    errors: int = 0
    first_error: str = ""

    @property
    def records_s(self) -> float:
        """Records per second."""
        return self.sent / self.duration_s if self.duration_s else 0.0

    def acknowledged(self, sent_ns: int, now_ns: int, error: object) -> None:
        """Record the acknowledgement of a timed record."""
        self.latencies_us.append((now_ns - sent_ns) // _NS_OF_US)
        if error is not None:
            self.errors += 1
            self.first_error = self.first_error or str(error)

    def stand(self, records: int) -> None:
        """Record the topic's number of records: missing ones have failed, timed or not."""
        self.errors = max(self.errors, self.sent - records)

    def failure(self) -> str:
        """Return the number of failed records, and the first known error."""
        why = f"the first with: {self.first_error}" if self.first_error else "none whose outcome was asked for"
        return f"{self.errors} of {self.sent} records failed, {why}"

    def line(self) -> str:
        """Return the figures in the format of Kafka's tool."""
        megabytes = self.records_s * self.plan.record_bytes / _MEGABYTE
        times = self.latencies_us or [0]
        average = sum(times) / len(times) / _US_OF_MS
        return (
            f"{self.sent} records sent, {self.records_s:.1f} records/sec ({megabytes:.2f} MB/sec), "
            f"{average:.2f} ms avg latency, {max(times) / _US_OF_MS:.2f} ms max latency"
        )

    def summary(self) -> dict[str, object]:
        """Return the figures by name; times in milliseconds."""
        times = self.latencies_us
        return {
            "records": self.sent,
            "seconds": self.duration_s,
            "records_s": self.records_s,
            "errors": self.errors,
            **{f"p{share * 100:g}_ms": quantile_ms(times, share) for share in _SHARES},
            "max_ms": max(times) / _US_OF_MS if times else None,
        }


class _Pace:
    """The schedule of records and of reports; used for the timed records."""

    def __init__(self, figures: Figures, clock: Clock, report: Callable[[Figures], None]) -> None:
        self._figures = figures
        self._now_ns = clock.monotonic_ns
        self._report = report
        self._report_at_ns = figures.start_ns + _REPORT_S * _NS_OF_S

    def wait_s(self, number: int) -> float:
        """Return the time until a record is due; 0 if it is."""
        throughput = self._figures.plan.throughput
        if not throughput:
            return 0.0
        return max(0.0, (self._figures.start_ns + number * _NS_OF_S // throughput - self._now_ns()) / _NS_OF_S)

    def timer(self, number: int) -> Acknowledged:
        """Return the acknowledgement callback of the record being sent."""
        figures, now_ns = self._figures, self._now_ns
        sent_ns = now_ns()
        if sent_ns >= self._report_at_ns:
            figures.sent, figures.duration_s = number, (sent_ns - figures.start_ns) / _NS_OF_S
            self._report(figures)
            self._report_at_ns += _REPORT_S * _NS_OF_S
        return lambda error: figures.acknowledged(sent_ns, now_ns(), error)

    def end(self) -> Figures:
        """Return the final figures."""
        figures = self._figures
        figures.sent, figures.duration_s = figures.plan.records, (self._now_ns() - figures.start_ns) / _NS_OF_S
        return figures


def drive(client: LoadClient, plan: Plan, clock: Clock, report: Callable[[Figures], None]) -> Figures:
    """Send the load, wait until it is acknowledged, and return the figures; `report` receives interim ones."""
    value, send, one_in = plan.value(), client.send, plan.timed_one_in
    pace = _Pace(Figures(plan, clock.monotonic_ns()), clock, report)
    pause = threading.Event()
    for number in range(plan.records):
        if number % one_in:
            send(value, None)
            continue
        wait_s = pace.wait_s(number)
        if wait_s:
            pause.wait(wait_s)
        send(value, pace.timer(number))
    client.flush()
    return pace.end()


async def drive_async(client: AsyncLoadClient, plan: Plan, clock: Clock, report: Callable[[Figures], None]) -> Figures:
    """Do the same in an event loop."""
    value, send, one_in = plan.value(), client.send, plan.timed_one_in
    pace = _Pace(Figures(plan, clock.monotonic_ns()), clock, report)
    for number in range(plan.records):
        if number % one_in:
            await send(value, None)
            continue
        wait_s = pace.wait_s(number)
        if wait_s:
            await asyncio.sleep(wait_s)
        await send(value, pace.timer(number))
    await client.flush()
    return pace.end()
