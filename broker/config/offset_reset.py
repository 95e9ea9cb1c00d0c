"""The start of a share group's partitions without a committed offset: `share.auto.offset.reset`.

Pure; read by handlers and the controller.
"""

from __future__ import annotations

import enum
import re
from typing import Final, NamedTuple

_BY_DURATION: Final = "by_duration:"
#: As Java's Duration.parse, without signs: the duration may not be negative.
_DURATION: Final = re.compile(
    r"P(?=.)(?:(?P<days>\d+)D)?"
    r"(?:T(?=.)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+)(?:[.,](?P<fraction>\d{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
_MS_PER_UNIT: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}


class ResetStrategy(enum.Enum):
    """The position in the log at which a group starts."""

    LATEST = "latest"
    EARLIEST = "earliest"
    BY_DURATION = "by_duration"


class OffsetReset(NamedTuple):
    """A strategy; `duration_ms` is the age of the first record with BY_DURATION."""

    strategy: ResetStrategy
    duration_ms: int = 0


def parse_offset_reset(text: str) -> OffsetReset:
    """Return the value that `text` writes. Raises ValueError, worded for the user."""
    if text in (ResetStrategy.LATEST.value, ResetStrategy.EARLIEST.value):
        return OffsetReset(ResetStrategy(text))
    found = _DURATION.fullmatch(text.removeprefix(_BY_DURATION)) if text.startswith(_BY_DURATION) else None
    if found is None:
        raise ValueError(
            "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS.>'."
        )
    whole = sum(int(found[unit] or 0) * factor for unit, factor in _MS_PER_UNIT.items())
    return OffsetReset(ResetStrategy.BY_DURATION, whole + int((found["fraction"] or "").ljust(3, "0")[:3]))


def offset_reset_complaint(text: str) -> str | None:
    """Return why a text is not a value of `share.auto.offset.reset`, or None."""
    try:
        parse_offset_reset(text)
    except ValueError as error:
        return str(error)
    return None
