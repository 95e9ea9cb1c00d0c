"""A range of time to report on, and its text forms: `24h` ago, an ISO time, `now`.

Pure. Times are UTC, in microseconds since the epoch, the end not included.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from rotunda.spark.failures import JobFailed

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)
_STEPS_S = (1, 5, 15, 60, 300, 900, 3600, 14_400, 86_400)
HOUR_US = 3_600_000_000
#: The text of the current time.
NOW = "now"


def to_us(time: datetime) -> int:
    """Return a time as microseconds since the epoch, exactly."""
    return (time - _EPOCH) // _US


def to_datetime(time_us: int) -> datetime:
    """Return microseconds since the epoch as a UTC time."""
    return _EPOCH + timedelta(microseconds=time_us)


def duration_of(text: str) -> timedelta:
    """Return a length of time such as 90s, 10m, 24h or 7d. Raises JobFailed."""
    number, unit = text[:-1], text[-1:]
    try:
        length = timedelta(**{_UNITS[unit]: int(number)})
    except (KeyError, ValueError, OverflowError):
        length = timedelta(0)
    if length <= timedelta(0):
        raise JobFailed(f"{text!r} is not a length of time; write it like 90s, 10m, 24h or 7d")
    return length


def time_of(text: str, now: datetime) -> datetime:
    """Return the time of a text: `now`, a length of time ago, or an ISO time (UTC by default).

    Raises JobFailed.
    """
    if text == NOW:
        return now
    if text[-1:] in _UNITS and text[:-1].isdecimal():
        try:
            return now - duration_of(text)
        except OverflowError:
            return _EPOCH
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        message = f"{text!r} is not a time; write `now`, a length of time ago like 24h or 7d, or 2026-01-31T13:00"
        raise JobFailed(message) from None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


@dataclass(frozen=True, slots=True)
class TimeRange:
    """From a time on (inclusive) up to another (exclusive), in microseconds since the epoch."""

    start_us: int
    end_us: int

    @classmethod
    def of(cls, start: str, end: str, now: datetime) -> TimeRange:
        """Return the range between two texts. Raises JobFailed for an invalid time or an empty range."""
        found = cls(to_us(time_of(start, now)), to_us(time_of(end, now)))
        if found.end_us <= found.start_us:
            raise JobFailed(f"the range from {start} to {end} is empty: {found}")
        return found

    @property
    def start(self) -> datetime:
        """The first moment."""
        return to_datetime(self.start_us)

    @property
    def end(self) -> datetime:
        """The first moment after it."""
        return to_datetime(self.end_us)

    def step_s(self, most: int) -> int:
        """Return the length of a chart's steps, of which the range has at most so many: a round one, if possible."""
        length_s = (self.end_us - self.start_us) / 1_000_000
        return next((step for step in _STEPS_S if length_s / step <= most), -int(-length_s // most))

    def hours(self) -> range:
        """Return the hours, counted since the epoch, that the range touches."""
        return range(self.start_us // HOUR_US, -(-self.end_us // HOUR_US))

    def whole_hours(self) -> range:
        """Return the hours, counted since the epoch, that lie within the range."""
        return range(-(-self.start_us // HOUR_US), self.end_us // HOUR_US)

    def __str__(self) -> str:
        return f"{self.start:%Y-%m-%d %H:%M:%S} to {self.end:%Y-%m-%d %H:%M:%S} UTC"
