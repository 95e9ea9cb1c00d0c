"""A member of a classic consumer group: joins, sends heartbeats, commits, and leaves.

Single-threaded: heartbeats are sent between fetches. If output blocks for longer than the session timeout, the member
is removed from the group, and rejoins when it resumes.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rotunda.broker.client.admin.groups import assigned_partitions, when_loaded
from rotunda.broker.client.admin.offsets import by_topic, commit_fields
from rotunda.broker.client.network.blocking_client import BlockingClient, ConnectionFailed, check
from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.errors import ApiError, RotundaError
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.messages.consumer_protocol import (
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

if TYPE_CHECKING:
    from rotunda.broker.clock import Clock

ASSIGNOR: Final = "range"


def by_ranges(
    wanted: Mapping[str, Iterable[str]], partitions: Iterable[TopicPartition]
) -> dict[str, list[TopicPartition]]:
    """Return each member's partitions: per topic a contiguous range; the first members get the remainder, one each.

    `wanted` has each member's topics. Same rule as Kafka's RangeAssignor for members without instance ids.
    """
    given: dict[str, list[TopicPartition]] = {member: [] for member in wanted}
    for topic, numbers in by_topic(partitions).items():
        members = sorted(member for member, topics in wanted.items() if topic in topics)
        if not members:
            continue
        each, more = divmod(len(numbers), len(members))
        at = 0
        for index, member in enumerate(members):
            size = each + (index < more)
            given[member] += [TopicPartition(topic, number) for number in numbers[at : at + size]]
            at += size
    return given


def partitions_of(leaders: Mapping[TopicPartition, int], topics: Iterable[str]) -> list[TopicPartition]:
    """Return the partitions of these topics in order."""
    wanted = set(topics)
    return sorted(each for each in leaders if each.topic in wanted)


_SESSION_MS: Final = 45_000
_REBALANCE_MS: Final = 60_000
_HEARTBEAT_NS: Final = 3_000_000_000
_PATIENCE_S: Final = 60.0
_ANSWER_S: Final = _REBALANCE_MS / 1000 + 15
_PAUSE_S: Final = 0.1
_REBALANCING: Final = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)
_MOVING: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NETWORK_EXCEPTION,
)
_COMMIT_VERSION: Final = 7
_FETCH_VERSION: Final = 7
_FETCH_FROM: Final = 1

_Answer = TypeVar("_Answer")


class GroupMember:
    """One member. `topics` returns the topics to subscribe to, and is called before each join."""

    def __init__(self, client: BlockingClient, group: str, topics: Callable[[], list[str]], clock: Clock) -> None:
        self._client = client
        self._group = group
        self._topics = topics
        self._clock = clock
        self._member_id = ""
        self._generation = -1
        self._heartbeat_at_ns = 0

    def join(self) -> tuple[TopicPartition, ...]:
        """Join or rejoin, and return this member's assigned partitions.

        Raises ApiError, and ConnectionFailed if the brokers are unreachable for a minute.
        """
        deadline_ns = self._clock.monotonic_ns() + int(_PATIENCE_S * 1e9)
        while True:
            try:
                joined = self._joined()
                given = self._synced(joined)
            except ApiError as error:
                if error.code == ErrorCode.UNKNOWN_MEMBER_ID:
                    self._member_id = ""
                if error.code not in (*_REBALANCING, *_MOVING) or self._clock.monotonic_ns() > deadline_ns:
                    raise
                if error.code in _MOVING:
                    self._client.forget_coordinator(self._group)
                select.select((), (), (), _PAUSE_S)
                continue
            except ConnectionFailed:
                if self._clock.monotonic_ns() > deadline_ns:
                    raise
                select.select((), (), (), _PAUSE_S)
                continue
            self._heartbeat_at_ns = self._clock.monotonic_ns() + _HEARTBEAT_NS
            return given

    def is_in(self) -> bool:
        """Send a heartbeat if due; return whether the assignment is still valid."""
        now_ns = self._clock.monotonic_ns()
        if now_ns < self._heartbeat_at_ns:
            return True
        self._heartbeat_at_ns = now_ns + _HEARTBEAT_NS
        try:
            check(self._ask(ApiKey.HEARTBEAT, 3, self._identity()))
        except ApiError as error:
            if error.code in _MOVING:
                self._client.forget_coordinator(self._group)
                return True
            if error.code not in _REBALANCING:
                raise
            if error.code == ErrorCode.UNKNOWN_MEMBER_ID:
                self._member_id = ""
            return False
        return True

    def committed(self, partitions: tuple[TopicPartition, ...]) -> dict[TopicPartition, int]:
        """Return the group's committed offsets for these partitions. Raises ApiError."""

        def fetch() -> dict[TopicPartition, int]:
            topics = [{"name": topic, "partition_indexes": each} for topic, each in by_topic(partitions).items()]
            fields = {"group_id": self._group, "topics": topics, "require_stable": True}
            response = self._ask(ApiKey.OFFSET_FETCH, _FETCH_VERSION, fields, _FETCH_FROM)
            check(response)
            found = {}
            for topic in response.topics:
                for each in topic.partitions:
                    check(each)
                    if int(each.committed_offset) >= 0:
                        found[TopicPartition(str(topic.name), int(each.partition_index))] = int(each.committed_offset)
            return found

        return self._patiently(fetch) if partitions else {}

    def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Commit offsets; return False if the assignment is no longer valid. Raises ApiError."""
        identity = self._identity()
        fields = {
            "group_id": self._group,
            "generation_id_or_member_epoch": self._generation,
            "member_id": identity["member_id"],
            "topics": commit_fields(offsets),
        }

        def send() -> None:
            for topic in self._ask(ApiKey.OFFSET_COMMIT, _COMMIT_VERSION, fields, oldest=5).topics:
                for each in topic.partitions:
                    check(each)

        try:
            self._patiently(send)
        except ApiError as error:
            if error.code not in _REBALANCING:
                raise
            return False
        return True

    def leave(self) -> None:
        """Leave the group if the coordinator is reachable; otherwise the member expires with its session."""
        if self._generation < 0:
            return
        self._generation = -1
        with suppress(ApiError, ConnectionFailed, RotundaError):
            fields = {"group_id": self._group, "member_id": self._member_id}
            self._ask(ApiKey.LEAVE_GROUP, 2, fields)

    def _joined(self) -> Any:
        self._metadata = encode_subscription(self._topics())
        fields = {
            "group_id": self._group,
            "session_timeout_ms": _SESSION_MS,
            "rebalance_timeout_ms": _REBALANCE_MS,
            "member_id": self._member_id,
            "protocol_type": "consumer",
            "protocols": [{"name": ASSIGNOR, "metadata": self._metadata}],
        }
        response = self._ask(ApiKey.JOIN_GROUP, 5, fields)
        if int(response.error_code) == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = str(response.member_id)
            response = self._ask(ApiKey.JOIN_GROUP, 5, {**fields, "member_id": self._member_id})
        check(response)
        self._member_id, self._generation = str(response.member_id), int(response.generation_id)
        return response

    def _synced(self, joined: Any) -> tuple[TopicPartition, ...]:
        given = self._assignments(joined) if joined.leader == self._member_id else {}
        parts = [
            {"member_id": member, "assignment": encode_assignment(0, by_topic(own))} for member, own in given.items()
        ]
        response = self._ask(ApiKey.SYNC_GROUP, 3, {**self._identity(), "assignments": parts})
        check(response)
        own = assigned_partitions(bytes(response.assignment))
        if own is None:
            raise RotundaError(f"group {self._group}: invalid assignment from its leader")
        # The assignment may contain topics that are new to this member.
        self._client.look({each.topic for each in own})
        return own

    def _assignments(self, joined: Any) -> dict[str, list[TopicPartition]]:
        wanted = {str(each.member_id): decode_subscription(bytes(each.metadata)).topic_names for each in joined.members}
        topics = {topic for each in wanted.values() for topic in each}
        self._client.look(topics)
        return by_ranges(wanted, partitions_of(self._client.leaders, topics))

    def _identity(self) -> dict[str, Any]:
        return {"group_id": self._group, "generation_id": self._generation, "member_id": self._member_id}

    def _ask(self, api_key: ApiKey, known: int, fields: Mapping[str, Any], oldest: int = 0) -> Any:
        """Send a request to the coordinator. Raises ApiError: NETWORK_EXCEPTION if it is unreachable."""
        try:
            node_id = self._client.coordinator(self._group)
            return self._client.request(api_key, fields, known, oldest, node_id=node_id, timeout_s=_ANSWER_S)
        except ConnectionFailed as failure:
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, str(failure)) from failure

    def _patiently(self, ask: Callable[[], _Answer]) -> _Answer:
        """Return the result of `ask`, retried for a while if the coordinator moved or is unreachable."""
        return when_loaded(ask, self._clock, _PATIENCE_S, _MOVING, lambda: self._client.forget_coordinator(self._group))
