"""The producer load: so many records of a size to a topic, at a rate or as fast as it goes, and how long they took.

After kafka-producer-perf-test. Runs in the command line's process; any client library brings its own `send`
(`producer_clients`). The time of a record is from the call that sends it to its acknowledgement. Below a rate all are
timed; as fast as it goes one in a hundred is, since a callback costs as much as sending.
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

#: Called with what went wrong, None for nothing.
Acknowledged = Callable[[object], None]

_NS_OF_S: Final = 1_000_000_000
_NS_OF_US: Final = 1_000
_US_OF_MS: Final = 1_000
_MEGABYTE: Final = 1 << 20
_TIMED_ONE_IN: Final = 100
_REPORT_S: Final = 5
_SHARES: Final = (0.5, 0.95, 0.99, 0.999)


class Plan(NamedTuple):
    """What is sent. `throughput` is records a second, 0 for as many as possible."""

    topic: str
    records: int
    record_bytes: int
    throughput: int = 0

    @property
    def timed_one_in(self) -> int:
        """Every how many records one is timed."""
        return 1 if self.throughput else _TIMED_ONE_IN

    def value(self) -> bytes:
        """Return the value that all records have: letters, as the tool of Kafka sends them."""
        return "".join(random.choices(string.ascii_uppercase, k=self.record_bytes)).encode()  # noqa: S311 - no secret


class LoadClient(Protocol):
    """A client library that sends the load."""

    def send(self, value: bytes, acknowledged: Acknowledged | None) -> None:
        """Send a record."""

    def flush(self) -> None:
        """Wait until everything is acknowledged."""

    def close(self) -> None:
        """End."""


class AsyncLoadClient(Protocol):
    """The same of a library on asyncio."""

    async def start(self) -> None:
        """Begin."""

    async def send(self, value: bytes, acknowledged: Acknowledged | None) -> None:
        """Send a record."""

    async def flush(self) -> None:
        """Wait until everything is acknowledged."""

    async def close(self) -> None:
        """End."""


@dataclass
class Figures:
    """What came of a load, so far."""

    plan: Plan
    start_ns: int
    sent: int = 0
    took_s: float = 0.0
    latencies_us: list[int] = field(default_factory=list)
    errors: int = 0
    first_error: str = ""

    @property
    def records_s(self) -> float:
        """Records a second."""
        return self.sent / self.took_s if self.took_s else 0.0

    def acknowledged(self, sent_ns: int, now_ns: int, error: object) -> None:
        """Take note of a record that was timed."""
        self.latencies_us.append((now_ns - sent_ns) // _NS_OF_US)
        if error is not None:
            self.errors += 1
            self.first_error = self.first_error or str(error)

    def stand(self, records: int) -> None:
        """Take note of how many of the records stand in the topic: what does not has failed, whoever asked for it."""
        self.errors = max(self.errors, self.sent - records)

    def failure(self) -> str:
        """Return how many records have failed, and with what as far as it was asked for."""
        why = f"the first with: {self.first_error}" if self.first_error else "none whose outcome was asked for"
        return f"{self.errors} of {self.sent} records failed, {why}"

    def line(self) -> str:
        """Return the figures as the tool of Kafka prints them."""
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
            "seconds": self.took_s,
            "records_s": self.records_s,
            "errors": self.errors,
            **{f"p{share * 100:g}_ms": quantile_ms(times, share) for share in _SHARES},
            "max_ms": max(times) / _US_OF_MS if times else None,
        }


class _Pace:
    """When records are due, and when to report; used for those that are timed."""

    def __init__(self, figures: Figures, clock: Clock, report: Callable[[Figures], None]) -> None:
        self._figures = figures
        self._now_ns = clock.monotonic_ns
        self._report = report
        self._report_at_ns = figures.start_ns + _REPORT_S * _NS_OF_S

    def wait_s(self, number: int) -> float:
        """Return for how long a record is not due; 0 for one that is."""
        throughput = self._figures.plan.throughput
        if not throughput:
            return 0.0
        return max(0.0, (self._figures.start_ns + number * _NS_OF_S // throughput - self._now_ns()) / _NS_OF_S)

    def timer(self, number: int) -> Acknowledged:
        """Return what is to be called when the record that is sent now is acknowledged."""
        figures, now_ns = self._figures, self._now_ns
        sent_ns = now_ns()
        if sent_ns >= self._report_at_ns:
            figures.sent, figures.took_s = number, (sent_ns - figures.start_ns) / _NS_OF_S
            self._report(figures)
            self._report_at_ns += _REPORT_S * _NS_OF_S
        return lambda error: figures.acknowledged(sent_ns, now_ns(), error)

    def end(self) -> Figures:
        """Return the figures of all."""
        figures = self._figures
        figures.sent, figures.took_s = figures.plan.records, (self._now_ns() - figures.start_ns) / _NS_OF_S
        return figures


def drive(client: LoadClient, plan: Plan, clock: Clock, report: Callable[[Figures], None]) -> Figures:
    """Send the load, wait until all of it is acknowledged, and return the figures; `report` sees them on the way."""
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
