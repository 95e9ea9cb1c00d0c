"""Requests about groups, made by kio, for brokers that are turned by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from broker.protocol.coordinator_routing import GROUP_TOPIC, coordinator_partition
from tests.support.stepped_broker import Client, Sent, SteppedBroker
from tests.support.transactional import answer_of, open_coordinator_topics, send

OFFSET_COMMIT, OFFSET_FETCH, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 8, 9, 11, 12, 13, 14
DESCRIBE_GROUPS, LIST_GROUPS, TXN_OFFSET_COMMIT, DELETE_GROUPS, OFFSET_DELETE = 15, 16, 28, 42, 47
GROUP_PARTITIONS = 4
SESSION_MS = 30_000


@contextmanager
def broker_with_groups(
    directory: Path,
    topics: Mapping[str, int] = MappingProxyType({"topic": 4}),
    settings: Mapping[str, str] | None = None,
) -> Iterator[SteppedBroker]:
    """Yield a broker with topics and those of groups and transactions, which is closed afterwards."""
    broker = SteppedBroker(directory, settings=settings)
    for name, partitions in topics.items():
        broker.create(name, partitions)
    open_coordinator_topics(broker)
    try:
        yield broker
    finally:
        broker.close()


def call(broker: SteppedBroker, client: Client, api_key: int, version: int, values: Mapping[str, Any]) -> Any:
    """Send a request, turn everybody until it is answered, and return the answer."""
    sent = send(client, api_key, version, dict(values))
    broker.settle()
    return answer_of(sent)


def groups_of(broker: SteppedBroker, owner: int, count: int, prefix: str = "group") -> list[str]:
    """Return ids of groups that a handler coordinates."""
    partitions = broker.owned_by(GROUP_TOPIC, owner)
    names = (f"{prefix}-{number}" for number in range(1000))
    return [name for name in names if coordinator_partition(name, GROUP_PARTITIONS) in partitions][:count]


class Member:
    """A member of a classic group on one connection."""

    def __init__(self, broker: SteppedBroker, group_id: str, *, protocol_type: str = "consumer") -> None:
        self.broker = broker
        self.group_id = group_id
        self.protocol_type = protocol_type
        self.client = broker.client()
        self.member_id = ""
        self.generation = -1

    def join_request(self) -> Sent:
        """Send JoinGroup 9."""
        subscription = b"\x00\x00\x00\x00\x00\x01\x00\x05topic\xff\xff\xff\xff"
        values = {
            "group_id": self.group_id,
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": SESSION_MS,
            "member_id": self.member_id,
            "protocol_type": self.protocol_type,
            "protocols": [{"name": "range", "metadata": subscription}],
        }
        return send(self.client, JOIN_GROUP, 9, values)

    def take(self, sent: Sent) -> int:
        """Take over what a JoinGroup was answered. Return its error code."""
        answer = answer_of(sent)
        if answer.member_id:
            self.member_id = answer.member_id
        self.generation = answer.generation_id
        return int(answer.error_code)

    def sync_request(self) -> Sent:
        """Send SyncGroup 5, with an assignment in case the member leads."""
        values = {
            "group_id": self.group_id,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "protocol_type": self.protocol_type,
            "protocol_name": "range",
            "assignments": [{"member_id": self.member_id, "assignment": b"mine"}],
        }
        return send(self.client, SYNC_GROUP, 5, values)

    def join(self) -> None:
        """Become the only member of a stable group."""
        first = self.join_request()
        self.broker.settle()
        assert self.take(first) == 79
        second = self.join_request()
        self.broker.settle()
        assert self.take(second) == 0
        synced = self.sync_request()
        self.broker.settle()
        assert answer_of(synced).assignment == b"mine"

    def rejoin(self) -> None:
        """Join again, which makes another generation."""
        joined = self.join_request()
        self.broker.settle()
        assert self.take(joined) == 0
        synced = self.sync_request()
        self.broker.settle()
        assert answer_of(synced).error_code == 0

    def heartbeat(self) -> int:
        """Return the error code of a Heartbeat."""
        values = {"group_id": self.group_id, "generation_id": self.generation, "member_id": self.member_id}
        return int(call(self.broker, self.client, HEARTBEAT, 4, values).error_code)

    def leave_request(self) -> Sent:
        """Send LeaveGroup 5."""
        values = {"group_id": self.group_id, "members": [{"member_id": self.member_id}]}
        return send(self.client, LEAVE_GROUP, 5, values)

    def commit_request(self, offsets: Mapping[tuple[str, int], int], metadata: str | None = "") -> Sent:
        """Send OffsetCommit 9."""
        return send(self.client, OFFSET_COMMIT, 9, self._commit(offsets, metadata))

    def commit(self, offsets: Mapping[tuple[str, int], int], metadata: str | None = "") -> list[int]:
        """Commit offsets; return the error code of each."""
        sent = self.commit_request(offsets, metadata)
        self.broker.settle()
        return [int(part.error_code) for topic in answer_of(sent).topics for part in topic.partitions]

    def _commit(self, offsets: Mapping[tuple[str, int], int], metadata: str | None) -> dict[str, Any]:
        return {
            "group_id": self.group_id,
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member_id,
            "topics": [
                {
                    "name": topic,
                    "partitions": [
                        {"partition_index": index, "committed_offset": offset, "committed_metadata": metadata}
                    ],
                }
                for (topic, index), offset in offsets.items()
            ],
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
