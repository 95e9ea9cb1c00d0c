"""`rotunda group list|describe|delete`: groups of all kinds, as a client of a running broker sees them."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from rotunda.broker.cli.cluster.cluster_client import connected, local
from rotunda.broker.cli.metrics_reader import attached, reading_with_groups
from rotunda.broker.client.admin import groups
from rotunda.broker.client.consumer import lag
from rotunda.broker.clock import SystemClock
from rotunda.broker.errors import ApiError, RotundaError
from rotunda.broker.protocol.error_codes import ErrorCode, name_of, text_of
from rotunda.broker.text_table import aligned, printable, quoted, suggestion
from rotunda.shm.segment import SegmentError

if TYPE_CHECKING:
    from rotunda.broker.client.admin.groups import Group, Member
    from rotunda.broker.client.consumer.lag import PartitionLag
    from rotunda.broker.client.network.blocking_client import BlockingClient
    from rotunda.broker.client.network.snapshot import Node
    from rotunda.broker.client.topic_partition import TopicPartition

_MEMBER_HEADERS = ("MEMBER", "INSTANCE", "CLIENT", "HOST", "ASSIGNED", "HEARTBEAT", "SESSION")
_SHARE_HEADERS = (
    *("TOPIC", "PARTITION", "START", "LAG", "MEMBERS"),
    *("IN FLIGHT", "WAITING", "DELIVERIES", "OLDEST LOCK", "DEAD LETTERS"),
)
_PARTITION_HEADERS = (
    "TOPIC",
    "PARTITION",
    "COMMITTED",
    "EPOCH",
    "START",
    "END",
    "STABLE",
    "LAG",
    "SECONDS",
    "MEMBER",
    "METADATA",
    "NOTE",
)


class MemberSession(NamedTuple):
    """Seconds since a member's last heartbeat, and until its session ends."""

    silent_s: float
    left_s: float


#: By member id.
Sessions = Mapping[str, MemberSession]


class Published(NamedTuple):
    """Facts that a group's handler publishes and Kafka's protocol has no field for; none of another machine's broker.

    ``partitions`` are those of a share group.
    """

    sessions: Sessions
    partitions: Mapping[tuple[str, int], Mapping[str, Any]]


def run(parsed: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Run one action. Raises RotundaError with Kafka's name for an error."""
    with connected(parsed, environment) as client:
        if parsed.action == "describe":
            _describe(parsed, client, _published(parsed, environment))
        else:
            _ACTIONS[parsed.action](parsed, client)
    return 0


def _published(parsed: argparse.Namespace, environment: Mapping[str, str]) -> Published:
    """Return the facts of a group, if the broker is that of the run directory."""
    record = local(parsed, environment)
    if record is None:
        return Published({}, {})
    try:
        reading = reading_with_groups(attached(record))
    except SegmentError:
        return Published({}, {})
    members = [
        member
        for snapshot in reading.snapshots.values()
        for group in snapshot["groups"]
        if group["id"] == parsed.name
        for member in group["members"]
        if "silent_ms" in member
    ]
    partitions = {
        (entry["topic"], entry["partition"]): entry
        for snapshot in reading.snapshots.values()
        for entry in snapshot["share_partitions"]
        if entry["group"] == parsed.name
    }
    return Published(
        {
            member["id"]: MemberSession(member["silent_ms"] / 1000, member["session_left_ms"] / 1000)
            for member in members
        },
        partitions,
    )


def _list(parsed: argparse.Namespace, client: BlockingClient) -> None:
    listed = groups.when_loaded(lambda: groups.list_groups(client, parsed.states, parsed.types), SystemClock())
    if parsed.json:
        print(
            json.dumps(
                [
                    {"group": each.name, "type": each.kind, "state": each.state, "protocol_type": each.protocol_type}
                    for each in listed
                ],
                indent=1,
            )
        )
        return
    rows = [(quoted(each.name), each.kind, each.state, printable(each.protocol_type) or None) for each in listed]
    _print(aligned(("GROUP", "TYPE", "STATE", "PROTOCOL"), rows))


def _describe(parsed: argparse.Namespace, client: BlockingClient, published: Published) -> None:
    sessions = published.sessions
    clock = SystemClock()
    coordinator = groups.when_loaded(lambda: client.find_coordinator(parsed.name), clock)
    group = groups.when_loaded(lambda: described(client, parsed.name), clock)
    if group.kind == groups.SHARE:
        _describe_share(parsed, client, group, coordinator, published)
        return
    committed = groups.when_loaded(lambda: groups.committed(client, group.name), clock)
    holders = {each: member for member in group.members for each in member.assignment or ()}
    rows = lag.measure(client, clock, committed, holders, read_committed=parsed.read_committed)
    if parsed.json:
        facts = _group_facts(group, coordinator, sessions)
        facts["isolation_level"] = "read_committed" if parsed.read_committed else "read_uncommitted"
        facts["partitions"] = [_partition_facts(row, holders.get(row.partition)) for row in rows]
        print(json.dumps(facts, indent=1))
        return
    _print(_group_lines(group, coordinator))
    if group.members:
        _print(["", *aligned(_MEMBER_HEADERS, [_member_cells(member, sessions) for member in group.members])])
    if rows:
        cells = [_partition_cells(row, holders.get(row.partition)) for row in rows]
        _print(["", *aligned(_PARTITION_HEADERS, cells)])


def _describe_share(
    parsed: argparse.Namespace, client: BlockingClient, group: Group, coordinator: Node, published: Published
) -> None:
    sessions = published.sessions
    offsets = groups.when_loaded(lambda: groups.share_offsets(client, group.name), SystemClock())
    members = Counter(each for member in group.members for each in member.assignment or ())
    if parsed.json:
        partitions = [
            {
                "topic": each.topic,
                "partition": each.partition,
                "start_offset": offset.start,
                "lag_records": offset.lag,
                "members": members[each],
                **_delivery_facts(published.partitions.get((each.topic, each.partition), {})),
            }
            for each, offset in sorted(offsets.items())
        ]
        print(json.dumps({**_group_facts(group, coordinator, sessions), "partitions": partitions}, indent=1))
        return
    _print(_group_lines(group, coordinator))
    if group.members:
        _print(["", *aligned(_MEMBER_HEADERS, [_member_cells(member, sessions) for member in group.members])])
    if offsets:
        cells = [
            (
                *(quoted(each.topic), each.partition, offset.start, offset.lag, members[each]),
                *_delivery_cells(published.partitions.get((each.topic, each.partition), {})),
            )
            for each, offset in sorted(offsets.items())
        ]
        _print(["", *aligned(_SHARE_HEADERS, cells)])


def _delivery_facts(entry: Mapping[str, Any]) -> dict[str, int | float | None]:
    left_ms = entry.get("lock_left_ms")
    return {
        "in_flight_records": entry.get("in_flight"),
        "waiting_records": entry.get("waiting"),
        "highest_delivery_count": entry.get("deliveries"),
        "oldest_lock_left_seconds": None if left_ms is None else left_ms / 1000,
        "dead_letters": entry.get("dead_letters"),
    }


def _delivery_cells(entry: Mapping[str, Any]) -> tuple[str | int | float | None, ...]:
    facts = _delivery_facts(entry)
    left_s = facts["oldest_lock_left_seconds"]
    return (
        facts["in_flight_records"],
        facts["waiting_records"],
        facts["highest_delivery_count"],
        None if left_s is None else f"ends in {left_s:.0f} s",
        facts["dead_letters"],
    )


def described(client: BlockingClient, name: str) -> Group:
    """Return a group. Raises ApiError; for an unknown group with its name."""
    try:
        return groups.describe(client, name)
    except ApiError as error:
        if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
            raise ApiError(error.code, _unknown_group(client, name)) from error
        raise


def _unknown_group(client: BlockingClient, name: str) -> str:
    try:
        known = groups.list_groups(client)
    except ApiError:
        known = []
    return f"unknown group {quoted(name)}{suggestion(name, (each.name for each in known), 'rotunda group list')}"


def members_of(group: Group) -> str:
    """Return a group's members with advice, for an error message; empty when none is known."""
    if not group.members:
        return ""
    who = ", ".join(
        f"{quoted(member.member_id)} (client {quoted(member.client_id)} at {printable(member.host)})"
        for member in group.members
    )
    stays = any(member.instance_id is not None for member in group.members)
    return f"{who}; stop them first" + (" and wait, as static members stay until their session ends" if stays else "")


def _delete(parsed: argparse.Namespace, client: BlockingClient) -> None:
    clock = SystemClock()
    results: list[dict[str, Any]] = []
    complaints = []
    for name in dict.fromkeys(parsed.names):
        error, message = None, None
        try:
            groups.when_loaded(partial(groups.delete, client, name), clock)
        except ApiError as failure:
            error, message = name_of(failure.code), _rejection(client, name, failure)
            complaints.append(f"{error}: {message}")
        results.append({"group": name, "deleted": error is None, "error": error, "message": message})
        if error is None and not parsed.json:
            print(f"deleted group {quoted(name)}")
    if parsed.json:
        print(json.dumps(results, indent=1))
    if complaints:
        raise RotundaError("\n".join(complaints))


def _rejection(client: BlockingClient, name: str, failure: ApiError) -> str:
    """Return the reason why a group was not deleted, with advice."""
    if failure.code == ErrorCode.GROUP_ID_NOT_FOUND:
        return _unknown_group(client, name)
    if failure.code != ErrorCode.NON_EMPTY_GROUP:
        return f"group {quoted(name)} is not deleted: {printable(failure.message or text_of(failure.code))}"
    try:
        who = members_of(groups.describe(client, name))
    except ApiError:
        # The members have left since, but the deletion has still failed.
        who = ""
    return f"group {quoted(name)} has members: {who}" if who else f"group {quoted(name)} had members; try again"


def _group_facts(group: Group, coordinator: Node, sessions: Sessions) -> dict[str, Any]:
    return {
        "group": group.name,
        "type": group.kind,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor,
        "epoch": group.epoch,
        "coordinator": {"id": coordinator.id, "host": coordinator.host, "port": coordinator.port},
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "epoch": member.epoch,
                "assignment": None
                if member.assignment is None
                else [{"topic": each.topic, "partition": each.partition} for each in member.assignment],
                **_session_facts(sessions.get(member.member_id)),
            }
            for member in group.members
        ],
    }


def _session_facts(session: MemberSession | None) -> dict[str, float | None]:
    silent_s, left_s = (None, None) if session is None else session
    return {"silent_seconds": silent_s, "session_left_seconds": left_s}


def _partition_facts(row: PartitionLag, holder: Member | None) -> dict[str, Any]:
    return {
        "topic": row.partition.topic,
        "partition": row.partition.partition,
        "committed_offset": row.committed.offset if row.committed else None,
        "committed_leader_epoch": row.committed.leader_epoch if row.committed else None,
        "committed_metadata": row.committed.metadata if row.committed else None,
        "log_start_offset": row.bounds.start if row.bounds else None,
        "log_end_offset": row.bounds.end if row.bounds else None,
        "last_stable_offset": row.bounds.stable if row.bounds else None,
        "lag_records": row.lag_records,
        "lag_seconds": row.lag_seconds,
        "member_id": holder.member_id if holder else None,
        "notes": list(row.notes),
    }


def _group_lines(group: Group, coordinator: Node) -> list[str]:
    facts = {
        "type": group.kind,
        "state": printable(group.state),
        "protocol": quoted(group.protocol_type) if group.protocol_type else "-",
        "assignor": quoted(group.assignor) if group.assignor else "-",
        "members": len(group.members),
        "coordinator": f"{coordinator.id}@{printable(coordinator.host)}:{coordinator.port}",
    }
    if group.epoch is not None:
        facts["epoch"] = group.epoch
    return [f"group {quoted(group.name)} " + " ".join(f"{name}={value}" for name, value in facts.items())]


def _member_cells(member: Member, sessions: Sessions) -> tuple[str | None, ...]:
    session = sessions.get(member.member_id)
    return (
        quoted(member.member_id),
        quoted(member.instance_id) if member.instance_id is not None else None,
        quoted(member.client_id),
        printable(member.host),
        _assigned(member.assignment),
        None if session is None else f"{session.silent_s:.0f} s ago",
        None if session is None else f"ends in {session.left_s:.0f} s",
    )


def _assigned(assignment: Iterable[TopicPartition] | None) -> str | None:
    """Return partitions as `topic:0,1 other:2`, the format of --topic."""
    if assignment is None:
        return None
    found: dict[str, list[str]] = {}
    for topic, partition in assignment:
        found.setdefault(topic, []).append(str(partition))
    return " ".join(f"{quoted(topic)}:{','.join(partitions)}" for topic, partitions in found.items()) or "none"


def _partition_cells(row: PartitionLag, holder: Member | None) -> tuple[str | int | float | None, ...]:
    facts = _partition_facts(row, holder)
    metadata = facts["committed_metadata"]
    return (
        quoted(row.partition.topic),
        row.partition.partition,
        facts["committed_offset"],
        facts["committed_leader_epoch"],
        facts["log_start_offset"],
        facts["log_end_offset"],
        facts["last_stable_offset"],
        row.lag_records,
        row.lag_seconds,
        quoted(holder.member_id) if holder else None,
        quoted(metadata) if metadata else None,
        "; ".join(row.notes),
    )


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


_ACTIONS: dict[str, Callable[[argparse.Namespace, BlockingClient], None]] = {
    "list": _list,
    "delete": _delete,
}
