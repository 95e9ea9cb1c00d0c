"""Reads topics in a fetch loop: all partitions, selected ones, or those assigned by a group.

Each fetch is returned as an iterator. After its caller has processed it, it calls `written`, and only then are offsets
committed. So committed records have been written, and written records may be repeated after a crash.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from rotunda.broker.client.admin.offsets import Bounds, at_time, bounds
from rotunda.broker.client.consumer.fetcher import Fetched, Fetcher
from rotunda.broker.client.consumer.group_member import GroupMember, partitions_of
from rotunda.broker.client.network.blocking_client import BlockingClient, ConnectionFailed
from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.errors import ApiError, RotundaError, UsageError
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.text_table import suggestion

if TYPE_CHECKING:
    from rotunda.broker.clock import Clock

BEGINNING: Final = "beginning"
END: Final = "end"
STORED: Final = "stored"
OFFSET: Final = "offset"
LAST: Final = "last"
TIME: Final = "time"

_WORDS: Final = {"beginning": BEGINNING, "earliest": BEGINNING, "end": END, "latest": END, "stored": STORED}
_UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MOST_MS: Final = 2**62
_TIMES: Final = "a duration such as 10m, @MILLISECONDS, or an ISO 8601 time such as 2024-05-31T18:00"


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
    try:
        return Start(TIME, parse_time(text, now_ms))
    except UsageError:
        raise UsageError(
            f"invalid start {text!r}: expected beginning, end, stored, an offset, -N (the last N records), {_TIMES}"
        ) from None


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
        raise UsageError(f"invalid time {text!r}: expected {_TIMES}") from None


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


_MAX_WAIT_MS: Final = 500
_COMMIT_NS: Final = 5_000_000_000
_LOOK_NS: Final = 30_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The selection to read. `partitions` are numbers, empty for all; with `follow` reading does not end."""

    topics: tuple[str, ...]
    partitions: tuple[int, ...] = ()
    start: Start = FROM_BEGINNING
    until_ms: int | None = None
    follow: bool = False
    read_committed: bool = True
    group: str | None = None


class Reader:
    """Reads the selected records. `note` receives messages for the user, such as deleted offsets."""

    def __init__(self, client: BlockingClient, wanted: Wanted, clock: Clock, note: Callable[[str], None]) -> None:
        self._client = client
        self._wanted = wanted
        self._clock = clock
        self._fetcher = Fetcher(client, clock, note, read_committed=wanted.read_committed, until_ms=wanted.until_ms)
        self._member = GroupMember(client, wanted.group, self._topics, clock) if wanted.group else None
        self._is_in = False
        self._committed: dict[TopicPartition, int] = {}
        self._next_commit_ns = 0
        self._next_look_ns = 0

    def fetches(self) -> Iterator[Iterator[Fetched]]:
        """Yield the records of each fetch, until the end. Raises ApiError, ConnectionFailed and RotundaError."""
        while True:
            if self._member is not None:
                self._keep_membership(self._member)
            elif not self._next_look_ns:
                self._take_partitions()
            elif self._clock.monotonic_ns() >= self._next_look_ns:
                # Fetches wait for an unreachable broker.
                with suppress(ConnectionFailed):
                    self._take_partitions()
            if not self._fetcher.positions and not self._wanted.follow:
                return
            yield self._fetcher.fetch(_MAX_WAIT_MS)

    def written(self) -> None:
        """Confirm that all returned records have been written; a group commits every 5 s."""
        if self._member is not None and self._clock.monotonic_ns() >= self._next_commit_ns:
            self._commit(self._member)

    def close(self) -> None:
        """Commit written records and leave the group."""
        if self._member is not None:
            if self._is_in:
                self._commit(self._member)
            self._member.leave()

    def interrupted(self) -> None:
        """Close after a signal, which may have interrupted a request: uses new connections."""
        self._client.restart()
        self.close()

    def abandon(self) -> None:
        """Leave the group without a commit: it is unknown how much of the last fetch was written."""
        if self._member is not None:
            self._member.leave()

    def _topics(self) -> list[str]:
        return matching(self._client, self._wanted.topics)

    def _take_partitions(self) -> None:
        """Start the existing partitions; partitions created later start at their beginning."""
        is_first = not self._next_look_ns
        self._next_look_ns = self._clock.monotonic_ns() + _LOOK_NS if self._wanted.follow else 1 << 63
        partitions = self._chosen(self._topics())
        known = self._fetcher.positions.keys() | self._fetcher.finished.keys()
        self._begin(set(partitions) - known, {}, self._wanted.start if is_first else FROM_BEGINNING)

    def _chosen(self, topics: list[str]) -> list[TopicPartition]:
        partitions = partitions_of(self._client.leaders, topics)
        if not self._wanted.partitions:
            return partitions
        for topic in topics:
            has = {each.partition for each in partitions if each.topic == topic}
            missing = sorted(set(self._wanted.partitions) - has)
            if missing:
                raise RotundaError(f"topic {topic} has no partition {missing[0]}: it has 0 to {len(has) - 1}")
        return [each for each in partitions if each.partition in self._wanted.partitions]

    def _keep_membership(self, member: GroupMember) -> None:
        if self._is_in and member.is_in():
            return
        if self._is_in:
            # During a rebalance the coordinator still accepts commits of its members.
            self._commit(member)
        self._fetcher.forget()
        given = member.join()
        self._is_in = True
        self._committed = member.committed(given)
        self._next_commit_ns = self._clock.monotonic_ns() + _COMMIT_NS
        self._begin(given, self._committed, self._wanted.start)

    def _begin(self, partitions: Iterable[TopicPartition], stored: dict[TopicPartition, int], start: Start) -> None:
        read_committed = self._wanted.read_committed
        for each, span in spans(self._client, partitions, start, stored, read_committed=read_committed).items():
            self._fetcher.begin(each, span.start, None if self._wanted.follow else span.end)

    def _commit(self, member: GroupMember) -> None:
        self._next_commit_ns = self._clock.monotonic_ns() + _COMMIT_NS
        stands = {**self._fetcher.positions, **self._fetcher.finished}
        new = {each: offset for each, offset in stands.items() if self._committed.get(each) != offset}
        if new and member.commit(new):
            self._committed.update(new)


def matching(client: BlockingClient, wanted: Iterable[str]) -> list[str]:
    """Return the topics of these names, and those that match an expression: a name that begins with ^.

    As in librdkafka, an expression matches from a name's start. Raises RotundaError if a topic does not exist and if
    nothing matches; ApiError if a topic may not be read.
    """
    wanted = list(wanted)
    expressions = [_expression(each) for each in wanted if each.startswith("^")]
    names = [each for each in wanted if not each.startswith("^")]
    problems = client.look(None if expressions else names)
    found = {name for name in problems if any(each.match(name) for each in expressions)}
    if expressions and names:
        problems |= client.look([*names, *found])
    for name in names:
        _raise_problem(client, name, problems.get(name, ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)))
    found.update(names)
    if not found:
        raise RotundaError(f"no topic matches {' '.join(wanted)}; see `rotunda topic list`")
    return sorted(found)


def _expression(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as failure:
        raise UsageError(f"invalid regular expression {text}: {failure}") from failure


def unknown_topic(client: BlockingClient, name: str) -> str:
    """Return the text of an error that names the closest topic, or else the command that lists topics."""
    return f"unknown topic {name}{suggestion(name, client.look(None), 'rotunda topic list')}"


def _raise_problem(client: BlockingClient, name: str, problem: ApiError | None) -> None:
    if problem is None:
        return
    if problem.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise RotundaError(unknown_topic(client, name))
    raise ApiError(problem.code, problem.message or f"topic {name}")
