"""Members that send requests, and other requests about groups: to a broker turned by hand, or to a running one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rotunda.broker.handler.request_handler import ALL_FAST_PATHS, FastPathSettings
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.routing import GROUP_TOPIC, coordinator_partition
from tests.support.deadline import wait_until
from tests.support.described_requests import ask, receive_answer, send_request
from tests.support.stepped_broker import Client, Sent, SteppedBroker
from tests.support.transactional import answer_of, open_coordinator_topics, send
from tests.support.wire_client import WireClient

OFFSET_COMMIT, OFFSET_FETCH, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 8, 9, 11, 12, 13, 14
DESCRIBE_GROUPS, LIST_GROUPS, TXN_OFFSET_COMMIT, DELETE_GROUPS, OFFSET_DELETE = 15, 16, 28, 42, 47
GROUP_PARTITIONS = 4
SESSION_MS = 30_000
#: A ConsumerProtocolSubscription to "topic".
SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x05topic\xff\xff\xff\xff"


def await_coordinators(wire: WireClient) -> None:
    """Have the internal topics created, and wait until their partitions are coordinated."""
    for key_type in (0, 1):
        fields = {"key_type": key_type, "coordinator_keys": ["any"]}
        wait_until(
            lambda fields=fields: not ask(wire, ApiKey.FIND_COORDINATOR, 4, fields).coordinators[0].error_code,
            "a coordinator",
        )


@contextmanager
def broker_with_groups(
    directory: Path,
    topics: Mapping[str, int] = MappingProxyType({"topic": 4}),
    settings: Mapping[str, str] | None = None,
    fast_paths: FastPathSettings = ALL_FAST_PATHS,
) -> Iterator[SteppedBroker]:
    """Yield a broker with topics and those of groups and transactions, which is closed afterwards."""
    broker = SteppedBroker(directory, settings=settings, fast_paths=fast_paths)
    for name, partitions in topics.items():
        broker.create(name, partitions)
    open_coordinator_topics(broker)
    try:
        yield broker
    finally:
        broker.close()


def call(broker: SteppedBroker, client: Client, api_key: int, version: int, values: Mapping[str, Any]) -> Any:
    """Send a request, turn all targets until the response is there, and return it."""
    sent = send(client, api_key, version, dict(values))
    broker.settle()
    return answer_of(sent)


def groups_of(broker: SteppedBroker, owner: int, count: int, prefix: str = "group") -> list[str]:
    """Return ids of groups that a handler coordinates."""
    partitions = broker.owned_by(GROUP_TOPIC, owner)
    names = (f"{prefix}-{number}" for number in range(1000))
    return [name for name in names if coordinator_partition(name, GROUP_PARTITIONS) in partitions][:count]


class _TurnedLink:
    """A connection to a broker that is turned by hand, until it has responded."""

    def __init__(self, broker: SteppedBroker) -> None:
        self.broker = broker
        self.client = broker.client()

    def send(self, api_key: int, version: int, values: dict[str, Any]) -> Sent:
        return send(self.client, api_key, version, values)

    def answer(self, sent: Sent) -> Any:
        if not sent.answers:
            self.broker.settle()
        return answer_of(sent)


class _WireLink:
    """A connection to a running broker; responses arrive in the order of the requests."""

    def __init__(self, wire: WireClient) -> None:
        self.wire = wire

    def send(self, api_key: int, version: int, values: dict[str, Any]) -> tuple[int, int]:
        send_request(self.wire, api_key, version, values)
        return api_key, version

    def answer(self, sent: tuple[int, int]) -> Any:
        return receive_answer(self.wire, *sent)


class Member:
    """Member of a classic group on one connection, to a broker that is turned by hand or to a running one.

    ``asks_for_id``: as clients do since version 4 of JoinGroup, it first receives its id. The return value of a method
    that ends in ``_request`` is the argument of `take` and `answer`.
    """

    def __init__(
        self,
        broker: SteppedBroker | WireClient,
        group_id: str,
        *,
        protocol_type: str = "consumer",
        metadata: bytes = SUBSCRIPTION,
        session_ms: int = SESSION_MS,
        asks_for_id: bool = True,
    ) -> None:
        self.link: Any = _WireLink(broker) if isinstance(broker, WireClient) else _TurnedLink(broker)
        self.group_id = group_id
        self.protocol_type = protocol_type
        self.metadata = metadata
        self.session_ms = session_ms
        self.join_version = 9 if asks_for_id else 3
        self.member_id = ""
        self.generation = -1

    @property
    def client(self) -> Client:
        """The connection to a broker that is turned by hand."""
        client: Client = self.link.client
        return client

    def reconnect(self) -> None:
        """Continue over another connection to a broker that is turned by hand and no longer has this one."""
        self.link = _TurnedLink(self.link.broker)

    def answer(self, sent: Any) -> Any:
        """Return the response to a request."""
        return self.link.answer(sent)

    def join_request(self) -> Any:
        """Send JoinGroup."""
        values = {
            "group_id": self.group_id,
            "session_timeout_ms": self.session_ms,
            "rebalance_timeout_ms": self.session_ms,
            "member_id": self.member_id,
            "protocol_type": self.protocol_type,
            "protocols": [{"name": "range", "metadata": self.metadata}],
        }
        return self.link.send(JOIN_GROUP, self.join_version, values)

    def take(self, sent: Any) -> int:
        """Apply a JoinGroup response. Return its error code."""
        answer = self.answer(sent)
        if answer.member_id:
            self.member_id = answer.member_id
        self.generation = answer.generation_id
        return int(answer.error_code)

    def enter(self) -> int:
        """Send JoinGroup, twice if the first response only has the member's id. Return the last error code."""
        error = self.take(self.join_request())
        return self.take(self.join_request()) if error == ErrorCode.MEMBER_ID_REQUIRED else error

    def sync_request(self, assignments: Mapping[str, bytes] | None = None) -> Any:
        """Send SyncGroup 5, with an assignment of its own unless there are others."""
        given = {self.member_id: b"mine"} if assignments is None else assignments
        values = {
            **self._who(),
            "protocol_type": self.protocol_type,
            "protocol_name": "range",
            "assignments": [{"member_id": member_id, "assignment": each} for member_id, each in given.items()],
        }
        return self.link.send(SYNC_GROUP, 5, values)

    def join(self, assignment: bytes = b"mine") -> bytes:
        """Become, also in another generation, the only member of a stable group; return its assignment."""
        assert self.enter() == 0
        answer = self.answer(self.sync_request({self.member_id: assignment}))
        assert int(answer.error_code) == 0
        return bytes(answer.assignment)

    def heartbeat(self) -> int:
        """Return the error code of a Heartbeat."""
        return int(self.answer(self.link.send(HEARTBEAT, 4, self._who())).error_code)

    def leave_request(self) -> Any:
        """Send LeaveGroup 5."""
        values = {"group_id": self.group_id, "members": [{"member_id": self.member_id}]}
        return self.link.send(LEAVE_GROUP, 5, values)

    def leave(self) -> int:
        """Leave the group; return the error code of the member."""
        return int(self.answer(self.leave_request()).members[0].error_code)

    def commit_request(self, offsets: Mapping[tuple[str, int], int], metadata: str | None = "") -> Any:
        """Send OffsetCommit 9."""
        parts = {
            place: {"partition_index": place[1], "committed_offset": offset, "committed_metadata": metadata}
            for place, offset in offsets.items()
        }
        values = {
            "group_id": self.group_id,
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member_id,
            "topics": [{"name": topic, "partitions": [part]} for (topic, _), part in parts.items()],
        }
        return self.link.send(OFFSET_COMMIT, 9, values)

    def commit(self, offsets: Mapping[tuple[str, int], int], metadata: str | None = "") -> list[int]:
        """Commit offsets; return the error code of each."""
        answer = self.answer(self.commit_request(offsets, metadata))
        return [int(part.error_code) for topic in answer.topics for part in topic.partitions]

    def _who(self) -> dict[str, Any]:
        return {"group_id": self.group_id, "generation_id": self.generation, "member_id": self.member_id}


def joining(group_id: str, member_id: str, **fields: Any) -> dict[str, Any]:
    """Return the fields of a ConsumerGroupHeartbeat that joins, subscribed to "topic"."""
    return {
        "group_id": group_id,
        "member_id": member_id,
        "member_epoch": 0,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ["topic"],
        "topic_partitions": [],
        **fields,
    }


def committed(
    broker: SteppedBroker, group_id: str, places: Sequence[tuple[str, int]], *, require_stable: bool = False
) -> list[tuple[int, int]]:
    """Return (offset, error code) of each place, by OffsetFetch 7."""
    values = {
        "group_id": group_id,
        "topics": [{"name": topic, "partition_indexes": [index]} for topic, index in places],
        "require_stable": require_stable,
    }
    answer = call(broker, broker.client(), OFFSET_FETCH, 7, values)
    assert int(answer.error_code) == 0
    found = {
        (topic.name, part.partition_index): (part.committed_offset, int(part.error_code))
        for topic in answer.topics
        for part in topic.partitions
    }
    return [found[place] for place in places]
