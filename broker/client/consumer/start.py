"""Start and end positions of a reader: parsing, and the offsets of each partition.

Positions: beginning, end, stored, an offset, -N from the end, a time; given as text on the command line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from rotunda.broker.client.admin.offsets import Bounds, at_time, bounds
from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.errors import RotundaError, UsageError

if TYPE_CHECKING:
    from rotunda.broker.client.network.blocking_client import BlockingClient

BEGINNING: Final = "beginning"
END: Final = "end"
STORED: Final = "stored"
OFFSET: Final = "offset"
LAST: Final = "last"
TIME: Final = "time"

_WORDS: Final = {"beginning": BEGINNING, "earliest": BEGINNING, "end": END, "latest": END, "stored": STORED}
_UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MOST_MS: Final = 2**62


class Start(NamedTuple):
    """A start position: one of the kinds above; `number` is an offset, a count from the end, or a time in ms."""

    kind: str
    number: int = 0


FROM_BEGINNING: Final = Start(BEGINNING)
FROM_END: Final = Start(END)


def parse_start(text: str, now_ms: int) -> Start:
    """Parse a start position. Raises UsageError."""
    if text in _WORDS:
        return Start(_WORDS[text])
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdecimal():
        return Start(LAST, int(digits)) if text.startswith("-") else Start(OFFSET, int(digits))
    return Start(TIME, parse_time(text, now_ms))


def parse_time(text: str, now_ms: int) -> int:
    """Parse a time to ms: `10m` ago, s@ or @ and ms since 1970, or an ISO time, UTC by default. Raises UsageError."""
    number, unit = text[:-1], text[-1:]
    since_1970 = text.removeprefix("s").removeprefix("e")
    try:
        if since_1970.startswith("@") and since_1970[1:].isascii() and since_1970[1:].isdecimal():
            return min(int(since_1970[1:]), _MOST_MS)
        if unit in _UNITS_MS and number.isascii() and number.isdecimal():
            return max(0, now_ms - int(number) * _UNITS_MS[unit])
        time = datetime.fromisoformat(text)
        return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise UsageError(
            f"{text!r} is no place to begin or end at: beginning, end, stored, an offset, -N from the end, "
            "a length of time like 10m, @MILLISECONDS, or a time like 2024-05-31T18:00"
        ) from None


class Span(NamedTuple):
    """The offsets of a partition to read: from `start` to below `end`, as of now."""

    start: int
    end: int


def spans(
    client: BlockingClient,
    partitions: Iterable[TopicPartition],
    start: Start,
    stored: Mapping[TopicPartition, int],
    *,
    read_committed: bool,
) -> dict[TopicPartition, Span]:
    """Return the start and end of each partition: its `stored` offset, or else `start`.

    Offsets before the first record are moved to it, offsets past the end to the end. Raises ApiError.
    """
    by_leader: dict[int, list[TopicPartition]] = {}
    for each in partitions:
        by_leader.setdefault(client.leaders[each], []).append(each)
    found = {}
    for leader_id, led in by_leader.items():
        held = bounds(client, led, leader_id)
        times = at_time(client, led, start.number, leader_id) if start.kind == TIME else {}
        for each in led:
            if each not in held:
                raise RotundaError(f"{each.topic} no longer has a partition {each.partition}")
            end = held[each].stable if read_committed else held[each].end
            found[each] = Span(stored.get(each, _first(start, held[each], end, times.get(each))), end)
    return found


def _first(start: Start, held: Bounds, end: int, at: int | None) -> int:
    if start.kind == END:
        return end
    if start.kind == TIME:
        return end if at is None else at
    if start.kind == LAST:
        return max(held.start, end - start.number)
    if start.kind == OFFSET:
        return min(max(start.number, held.start), end)
    return held.start
