"""The command line's group operations, as requests on a client.

Supports three kinds of group: `classic` (JoinGroup and SyncGroup), `consumer` (KIP-848) and `share` (KIP-932). Uses a
single connection: its broker must be the groups' coordinator, as is the case in a cluster of one broker.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from rotunda.broker.client.admin.offsets import commit_fields
from rotunda.broker.client.network.blocking_client import check
from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.messages.consumer_protocol import decode_assignment

if TYPE_CHECKING:
    from rotunda.broker.client.network.blocking_client import BlockingClient
    from rotunda.broker.clock import Clock


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...] | None:
    """Decode an assignment of any version into sorted partitions; None if it is malformed, which clients may cause."""
    try:
        found = decode_assignment(assignment)
    except ApiError:
        return None
    return tuple(sorted([TopicPartition(topic, index) for topic, indexes in found.items() for index in indexes]))


CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
SHARE: Final = "share"
INACTIVE_STATES: Final = ("Empty", "Dead")
"""States without members, in which offsets can be reset."""

_LIST_VERSION: Final = 5
_STATES_FROM: Final = 4
_TYPES_FROM: Final = 5
_DESCRIBE_VERSION: Final = 6
_CONSUMER_DESCRIBE_VERSION: Final = 1
_SHARE_DESCRIBE_VERSION: Final = 1
_SHARE_OFFSETS_VERSION: Final = 1
_ALTER_SHARE_OFFSETS_VERSION: Final = 0
_DELETE_VERSION: Final = 2
_COMMIT_VERSION: Final = 9
_COMMIT_FROM: Final = 5  # older ones carry a retention time
_FETCH_VERSION: Final = 9
_FETCH_FROM: Final = 8
_NOT_A_MEMBER: Final = -1
_PAUSE_S: Final = 0.05
_LOADING: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)

_Answer = TypeVar("_Answer")


class ListedGroup(NamedTuple):
    """A listed group. `state` and `kind` are None if the broker is too old to send them."""

    name: str
    kind: str | None
    state: str | None
    protocol_type: str


class Member(NamedTuple):
    """A group member. `assignment` is None if its format is unknown."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    epoch: int | None
    assignment: tuple[TopicPartition, ...] | None


class Group(NamedTuple):
    """A described group. `assignor` is the protocol of a classic group, None without one."""

    name: str
    kind: str
    state: str
    protocol_type: str
    assignor: str | None
    epoch: int | None
    members: tuple[Member, ...]


class Committed(NamedTuple):
    """A group's committed offset of a partition, with its metadata."""

    offset: int
    leader_epoch: int | None
    metadata: str


class ShareOffset(NamedTuple):
    """A share group's first offset of a partition that is not done, and its lag; None where it is unknown."""

    start: int | None
    lag: int | None


def when_loaded(
    ask: Callable[[], _Answer],
    clock: Clock,
    patience_s: float = 10.0,
    codes: Container[int] = _LOADING,
    before_retry: Callable[[], None] = lambda: None,
) -> _Answer:
    """Return the result of `ask`, retried for a while if a coordinator is still loading. Raises its ApiError."""
    deadline_ns = clock.monotonic_ns() + int(patience_s * 1e9)
    while True:
        try:
            return ask()
        except ApiError as error:
            if error.code not in codes or clock.monotonic_ns() >= deadline_ns:
                raise
        before_retry()
        select.select((), (), (), _PAUSE_S)


def list_groups(client: BlockingClient, states: Iterable[str] = (), kinds: Iterable[str] = ()) -> list[ListedGroup]:
    """Return all groups, sorted by name, optionally filtered by state and kind. Raises ApiError."""
    states, kinds = list(states), list(kinds)
    oldest = _TYPES_FROM if kinds else _STATES_FROM if states else 0
    version = client.highest_version(ApiKey.LIST_GROUPS, _LIST_VERSION, oldest)
    fields = {"states_filter": states, "types_filter": kinds}
    response = client.request(ApiKey.LIST_GROUPS, fields, version, version)
    check(response)
    return sorted(
        ListedGroup(
            str(each.group_id),
            str(each.group_type).lower() if version >= _TYPES_FROM else None,
            str(each.group_state) if version >= _STATES_FROM else None,
            str(each.protocol_type),
        )
        for each in response.groups
    )


def describe(client: BlockingClient, name: str) -> Group:
    """Return a group of any kind. Raises ApiError: GROUP_ID_NOT_FOUND if it does not exist."""
    if client.serves(ApiKey.CONSUMER_GROUP_DESCRIBE):
        response = client.request(ApiKey.CONSUMER_GROUP_DESCRIBE, {"group_ids": [name]}, _CONSUMER_DESCRIBE_VERSION)
        found = response.groups[0]
        if int(found.error_code) != ErrorCode.GROUP_ID_NOT_FOUND:
            check(found)
            return _assigned_group(found, CONSUMER)
    if client.serves(ApiKey.SHARE_GROUP_DESCRIBE):
        response = client.request(ApiKey.SHARE_GROUP_DESCRIBE, {"group_ids": [name]}, _SHARE_DESCRIBE_VERSION)
        found = response.groups[0]
        if int(found.error_code) not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            check(found)
            return _assigned_group(found, SHARE)
    found = client.request(ApiKey.DESCRIBE_GROUPS, {"groups": [name]}, _DESCRIBE_VERSION).groups[0]
    check(found)
    if found.group_state == "Dead":
        # Before version 6 this is the response for an unknown group.
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
    return _classic_group(found)


def _assigned_group(found: Any, kind: str) -> Group:
    """Return a group whose coordinator assigns its partitions."""
    members = tuple(
        sorted(
            Member(
                each.member_id,
                getattr(each, "instance_id", None),
                each.client_id,
                each.client_host,
                int(each.member_epoch),
                _assigned(each.assignment),
            )
            for each in found.members
        )
    )
    return Group(
        str(found.group_id),
        kind,
        found.group_state,
        kind,
        found.assignor_name or None,
        int(found.group_epoch),
        members,
    )


def _assigned(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(str(topic.topic_name), int(partition))
            for topic in assignment.topic_partitions
            for partition in topic.partitions
        )
    )


def _classic_group(found: Any) -> Group:
    # Only the consumer protocol's format is known; assignments of other protocol types are opaque.
    readable = found.protocol_type == "consumer"
    members = tuple(
        sorted(
            Member(
                each.member_id,
                getattr(each, "group_instance_id", None),
                each.client_id,
                each.client_host,
                None,
                assigned_partitions(each.member_assignment) if readable else None,
            )
            for each in found.members
        )
    )
    protocol = found.protocol_data or None
    return Group(str(found.group_id), CLASSIC, found.group_state, found.protocol_type, protocol, None, members)


def delete(client: BlockingClient, name: str) -> None:
    """Delete a group with its offsets. Raises ApiError: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND."""
    check(client.request(ApiKey.DELETE_GROUPS, {"groups_names": [name]}, _DELETE_VERSION).results[0])


def committed(client: BlockingClient, name: str) -> dict[TopicPartition, Committed]:
    """Return all committed offsets of a group; those of a transaction only after its commit. Raises ApiError."""
    wanted = {"group_id": name, "member_id": None, "member_epoch": _NOT_A_MEMBER, "topics": None}
    response = client.request(
        ApiKey.OFFSET_FETCH, {"groups": [wanted], "require_stable": False}, _FETCH_VERSION, _FETCH_FROM
    )
    group = response.groups[0]
    if int(group.error_code) == ErrorCode.GROUP_ID_NOT_FOUND:
        return {}
    check(group)
    offsets = {}
    for topic in group.topics:
        for each in topic.partitions:
            check(each)
            if each.committed_offset < 0:
                continue
            epoch = int(each.committed_leader_epoch)
            offsets[TopicPartition(str(topic.name), int(each.partition_index))] = Committed(
                int(each.committed_offset), epoch if epoch >= 0 else None, each.metadata or ""
            )
    return offsets


def share_offsets(client: BlockingClient, name: str) -> dict[TopicPartition, ShareOffset]:
    """Return the start offsets of a share group. Raises ApiError."""
    wanted = {"groups": [{"group_id": name, "topics": None}]}
    group = client.request(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, wanted, _SHARE_OFFSETS_VERSION).groups[0]
    check(group)
    offsets = {}
    for topic in group.topics:
        for each in topic.partitions:
            check(each)
            offsets[TopicPartition(str(topic.topic_name), int(each.partition_index))] = ShareOffset(
                int(each.start_offset) if each.start_offset >= 0 else None, int(each.lag) if each.lag >= 0 else None
            )
    return offsets


def commit(client: BlockingClient, name: str, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Set offsets of a group without members; return each partition's error code, 0 for success."""
    topics = commit_fields(offsets)
    fields = {"group_id": name, "generation_id_or_member_epoch": _NOT_A_MEMBER, "member_id": "", "topics": topics}
    response = client.request(ApiKey.OFFSET_COMMIT, fields, _COMMIT_VERSION, _COMMIT_FROM)
    return {
        TopicPartition(str(topic.name), int(each.partition_index)): int(each.error_code)
        for topic in response.topics
        for each in topic.partitions
    }


def alter_share_offsets(
    client: BlockingClient, name: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Set start offsets of a share group without members; return each partition's error code. Raises ApiError."""
    partitions: dict[str, list[dict[str, int]]] = {}
    for each, offset in offsets.items():
        wanted = {"partition_index": each.partition, "start_offset": offset}
        partitions.setdefault(each.topic, []).append(wanted)
    topics = [{"topic_name": topic, "partitions": found} for topic, found in partitions.items()]
    fields = {"group_id": name, "topics": topics}
    response = client.request(ApiKey.ALTER_SHARE_GROUP_OFFSETS, fields, _ALTER_SHARE_OFFSETS_VERSION)
    check(response)
    return {
        TopicPartition(str(topic.topic_name), int(each.partition_index)): int(each.error_code)
        for topic in response.responses
        for each in topic.partitions
    }
