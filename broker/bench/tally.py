"""Results of the bench by API: requests, responses and times, next to the profile's. Pure functions and values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from rotunda.broker.bench.profile import REQUEST, Event
from rotunda.broker.text_table import printable

_MS: Final = 1_000.0
HEADERS: Final = (
    "API", "profile", "sent", "responses", "errors", "left out", "profile/s", "responses/s", "profile bytes",
    "bytes sent", "profile p50 ms", "p50 ms", "profile p99 ms", "p99 ms",
)  # fmt: skip


@dataclass(slots=True)
class Tally:
    """One API: counts, bytes, and times in microseconds; the profile's times are those of the recorded broker."""

    name: str
    in_profile: int = 0
    profile_bytes: int = 0
    profile_us: list[int] = field(default_factory=list)
    sent: int = 0
    sent_bytes: int = 0
    received: int = 0
    received_bytes: int = 0
    errors: int = 0
    left_out: int = 0
    response_us: list[int] = field(default_factory=list)

    def row(self, profile_s: float, duration_s: float) -> tuple[str | int | float | None, ...]:
        """Return the cells of `HEADERS`."""
        times = (quantile_ms(each, share) for share in (0.5, 0.99) for each in (self.profile_us, self.response_us))
        return (
            self.name, self.in_profile, self.sent, self.received, self.errors, self.left_out,
            self.in_profile / profile_s, self.received / duration_s, self.profile_bytes, self.sent_bytes, *times,
        )  # fmt: skip


class Tallies:
    """Tallies by API, and global counts: request delays, and failed connections."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.by_api: dict[int, Tally] = {}
        self.late_us: list[int] = []
        self.connections = 0
        self.lost_connections = 0
        for event in events:
            if event.event == REQUEST:
                tally = self.of(event)
                tally.in_profile += event.repeat
                tally.profile_bytes += (event.requestBytes or 0) * event.repeat
                tally.profile_us.append(event.totalTimeUs or 0)

    def of(self, event: Event) -> Tally:
        """Return the tally of an event's API."""
        key = -1 if event.requestApiKey is None else event.requestApiKey
        if key not in self.by_api:
            self.by_api[key] = Tally(printable(event.requestApiKeyName or str(key)))
        return self.by_api[key]

    def total(self, name: str) -> int:
        """Return the sum of a count over all APIs."""
        return sum(getattr(tally, name) for tally in self.by_api.values())

    def ordered(self) -> list[Tally]:
        """Return the tallies, ordered by requests in the profile, most first."""
        return sorted(self.by_api.values(), key=lambda tally: (-tally.in_profile, tally.name))


def quantile_ms(times_us: Sequence[int], share: float) -> float | None:
    """Return a quantile in milliseconds: the smallest time that at least `share` do not exceed; None if empty."""
    if not times_us:
        return None
    return sorted(times_us)[max(0, -int(-len(times_us) * share // 1) - 1)] / _MS
