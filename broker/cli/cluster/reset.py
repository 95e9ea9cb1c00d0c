"""`rotunda group reset-offsets`: shows or sets the offsets of a group without members.

Those of a share group are its start offsets; the states of its records are forgotten.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from rotunda.broker.cli.cluster.cluster_client import connected
from rotunda.broker.cli.cluster.groups import members_of
from rotunda.broker.client.admin import groups, resets, topics
from rotunda.broker.client.admin.resets import Goal
from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.clock import SystemClock
from rotunda.broker.errors import ApiError, RotundaError, UsageError
from rotunda.broker.protocol.error_codes import ErrorCode, name_of
from rotunda.broker.text_table import aligned, printable, quoted

if TYPE_CHECKING:
    from rotunda.broker.client.admin.resets import Reset
    from rotunda.broker.client.network.blocking_client import BlockingClient
    from rotunda.broker.clock import Clock

_HEADERS: Final = ("TOPIC", "PARTITION", "BEFORE", "AFTER", "NOTE")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_DURATION: Final = re.compile(
    r"P(?=[\dT])(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.ASCII | re.IGNORECASE,
)
_HIGHEST_OFFSET: Final = (1 << 63) - 1


def run(parsed: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Show the new offsets, or with --execute set them.

    Raises UsageError, and RotundaError when the group has members or an offset was rejected.
    """
    clock = SystemClock()
    goal, number = _goal(parsed, clock)
    scope = _scope(parsed.topics)
    with connected(parsed, environment) as client:
        groups.when_loaded(lambda: client.find_coordinator(parsed.name), clock)
        is_share = groups.when_loaded(lambda: _kind_of_inactive(client, parsed.name), clock) == groups.SHARE
        current = groups.when_loaded(lambda: _current(client, parsed.name, is_share=is_share), clock)
        partitions = _partitions(client, scope) if scope else list(current)
        if not partitions:
            raise RotundaError(f"group {quoted(parsed.name)} has no offsets: name topics with --topic")
        planned = resets.plan(client, goal, number, partitions, current)
        errors = _execute(client, parsed.name, planned, is_share=is_share) if parsed.execute else {}
    _print(parsed, planned, errors)
    refused = sorted(each for each, code in errors.items() if code)
    if refused:
        raise RotundaError("\n".join(f"{_named(each)}: {_rejection(errors[each])}" for each in refused))
    return 0


def _goal(parsed: argparse.Namespace, clock: Clock) -> tuple[Goal, int]:
    """Return the goal with its number, from the one given goal option."""
    if parsed.to_offset is not None:
        if not 0 <= parsed.to_offset <= _HIGHEST_OFFSET:
            raise UsageError(f"--to-offset {parsed.to_offset}: offsets begin at 0")
        return Goal.OFFSET, parsed.to_offset
    if parsed.shift_by is not None:
        return Goal.SHIFT, parsed.shift_by
    if parsed.to_datetime is not None:
        return Goal.TIME, time_ms(parsed.to_datetime)
    if parsed.by_duration is not None:
        return Goal.TIME, max(clock.wall_ms() - duration_ms(parsed.by_duration), 0)
    simple = {Goal.EARLIEST: parsed.to_earliest, Goal.LATEST: parsed.to_latest, Goal.CURRENT: parsed.to_current}
    return next(goal for goal, wanted in simple.items() if wanted), 0


def time_ms(text: str) -> int:
    """Return the milliseconds since the epoch of a time in ISO 8601, UTC by default."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--to-datetime {text}: expected a time such as 2024-05-31T18:00:00.000") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    if moment < _EPOCH:
        raise UsageError(f"--to-datetime {text}: no record is older than 1970-01-01")
    return (moment - _EPOCH) // _MILLISECOND


def duration_ms(text: str) -> int:
    """Return the milliseconds of a duration in ISO 8601, days at most."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise UsageError(f"--by-duration {text}: expected days, hours, minutes and seconds such as P1DT2H3M4S or PT30M")
    try:
        length = timedelta(**{unit: float(number) for unit, number in found.groupdict(default="0").items()})
    except OverflowError:
        raise UsageError(f"--by-duration {text}: before 1970-01-01") from None
    return length // _MILLISECOND


def _scope(texts: Iterable[str]) -> dict[str, set[int] | None]:
    """Return the partitions that --topic names for each topic, None for all of them."""
    scope: dict[str, set[int] | None] = {}
    for text in texts:
        topic, separator, numbers = text.partition(":")
        listed = numbers.split(",")
        if not topic or (separator and not all(each.isascii() and each.isdecimal() for each in listed)):
            raise UsageError(f"--topic {printable(text)}: expected TOPIC or TOPIC:PARTITION,... such as orders:0,2")
        partitions = {int(each) for each in listed} if separator else None
        known = scope.get(topic, set())
        scope[topic] = None if known is None or partitions is None else known | partitions
    return scope


def _partitions(client: BlockingClient, scope: Mapping[str, set[int] | None]) -> list[TopicPartition]:
    """Return the partitions of the scope. Raises RotundaError if one does not exist."""
    counts = topics.partition_counts(client, scope)
    found = []
    for topic, numbers in scope.items():
        if topic not in counts:
            raise RotundaError(f"unknown topic {quoted(topic)}; see `rotunda topic list`")
        missing = sorted(each for each in numbers or () if each >= counts[topic])
        if missing:
            listed = ", ".join(map(str, missing))
            raise RotundaError(f"topic {topic} has partitions 0 to {counts[topic] - 1}, not {listed}")
        found += [TopicPartition(topic, each) for each in numbers or range(counts[topic])]
    return found


def _kind_of_inactive(client: BlockingClient, name: str) -> str:
    """Return the type of a group, empty for one that does not exist: its offsets may be set before it does.

    Raises RotundaError when it has members.
    """
    try:
        group = groups.describe(client, name)
    except ApiError as error:
        if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return ""
        raise
    if group.state not in groups.INACTIVE_STATES:
        raise RotundaError(
            f"offsets can only be reset while a group has no members: {quoted(name)} is in state "
            f"{printable(group.state)}, with members {members_of(group) or 'unknown'}"
        )
    return group.kind


def _current(client: BlockingClient, name: str, *, is_share: bool) -> dict[TopicPartition, int]:
    if is_share:
        starts = groups.share_offsets(client, name).items()
        return {each: offset.start for each, offset in starts if offset.start is not None}
    return {each: value.offset for each, value in groups.committed(client, name).items()}


def _execute(
    client: BlockingClient, name: str, planned: Iterable[Reset], *, is_share: bool
) -> dict[TopicPartition, int]:
    wanted = {each.partition: each.after for each in planned if each.after is not None}
    execute = groups.alter_share_offsets if is_share else groups.commit
    return execute(client, name, wanted) if wanted else {}


def _rejection(code: int) -> str:
    if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS):
        return f"{name_of(code)}: not set: the group has members now; stop them and retry"
    return f"{name_of(code)}: not set"


def _named(partition: TopicPartition) -> str:
    return f"{printable(partition.topic)}-{partition.partition}"


def _print(parsed: argparse.Namespace, planned: Iterable[Reset], errors: Mapping[TopicPartition, int]) -> None:
    if parsed.json:
        partitions = [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "before": each.before,
                "after": each.after,
                "warning": each.warning,
                "error": name_of(errors[each.partition]) if errors.get(each.partition) else None,
            }
            for each in planned
        ]
        print(json.dumps({"group": parsed.name, "executed": parsed.execute, "partitions": partitions}, indent=1))
        return
    rows = []
    for each in planned:
        notes = [each.warning] if each.warning else []
        if errors.get(each.partition):
            notes.append(f"refused: {name_of(errors[each.partition])}")
        rows.append((quoted(each.partition.topic), each.partition.partition, each.before, each.after, "; ".join(notes)))
    for line in aligned(_HEADERS, rows):
        print(line)
    if not parsed.execute:
        print("no offsets were changed: use --execute to set them")
