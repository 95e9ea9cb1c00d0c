"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords: served from the partition table, files and owners."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple

import pytest

from rotunda.broker.apis.topics.delete_records import handle_delete_records
from rotunda.broker.log.owner_tasks import START_OFFSET
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.scheduling.deferred import Deferred
from rotunda.shm.tables.partitions import STATE_CLOSED, STATE_UNOPENED
from tests.support.admin_cluster import AdminCluster
from tests.support.slices import finished

NONE = (0, -1, -1, -1)
READ_COMMITTED = 1


class Found(NamedTuple):
    """The result of a log reader."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


class ListReader:
    """A log reader over a list of (offset, timestamp), the reference for the real one."""

    def __init__(self, records: list[tuple[int, int]], epochs: list[tuple[int, int]]) -> None:
        self._records = records
        self._epochs = epochs

    def offset_for_timestamp(
        self, timestamp_ms: int, start: int, end: tuple[int, int, int]
    ) -> Generator[None, None, Found | None]:
        yield
        for offset, timestamp in self._records:
            if start <= offset < end[0] and timestamp >= timestamp_ms:
                return Found(timestamp, offset, self.epoch_for_offset(offset))
        return None

    def max_timestamp(self, start: int, end: tuple[int, int, int]) -> Generator[None, None, Found | None]:
        yield
        inside = [(timestamp, -offset) for offset, timestamp in self._records if start <= offset < end[0]]
        if not inside:
            return None
        timestamp, negative = max(inside)
        return Found(timestamp, -negative, self.epoch_for_offset(-negative))

    def epoch_for_offset(self, offset: int) -> int:
        return max((epoch for epoch, first in self._epochs if first <= offset), default=-1)

    def epoch_end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        known = [each for each, _ in self._epochs if each <= epoch]
        if not known or epoch > self._epochs[-1][0]:
            return -1, -1
        following = [first for each, first in self._epochs if each > epoch]
        return max(known), min(following, default=log_end_offset)


@pytest.fixture
def cluster(cluster: AdminCluster) -> AdminCluster:
    """Return a cluster with "orders-0": records 3 to 9, one per second from 1,003,000 ms on; 8 and 9 not stable."""
    cluster.create("orders", 2)
    row = cluster.partition("orders").row
    cluster.publish(row, end=10, start=3, stable=8)
    cluster.table.set_leader_epoch(row, 5)
    cluster.readers["orders", 0] = ListReader(
        [(offset, 1_000_000 + 1000 * offset) for offset in range(3, 10)], [(2, 0), (4, 5), (5, 7)]
    )
    return cluster


def offsets(
    cluster: AdminCluster, *topics: dict[str, Any], isolation_level: int = 0, version: int = 11
) -> list[tuple[int, ...]]:
    """Return (error, timestamp, offset, leader epoch) of each partition."""
    fields = {"replica_id": -1, "isolation_level": isolation_level, "topics": topics, "timeout_ms": 1000}
    answer = cluster.call(ApiKey.LIST_OFFSETS, version, fields)
    return [
        (part.error_code, part.timestamp, part.offset, part.leader_epoch)
        for topic in answer.topics
        for part in topic.partitions
    ]


def at(timestamp: int, topic: str = "orders", partition: int = 0, epoch: int = -1) -> dict[str, Any]:
    part = {"partition_index": partition, "current_leader_epoch": epoch, "timestamp": timestamp}
    return {"name": topic, "partitions": [part]}


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (-1, (0, -1, 10, 5)),
        (-2, (0, -1, 3, 2)),
        (-3, (0, 1_009_000, 9, 5)),
        (-4, (0, -1, 3, 2)),
        (-5, NONE),
        (-6, NONE),
        (0, (0, 1_003_000, 3, 2)),
        (1_004_000, (0, 1_004_000, 4, 2)),
        (1_004_001, (0, 1_005_000, 5, 4)),
        (1_009_000, (0, 1_009_000, 9, 5)),
        (1_009_001, NONE),
        (2**62, NONE),
    ],
)
def test_offsets_by_special_and_real_timestamps(
    cluster: AdminCluster, timestamp: int, expected: tuple[int, ...]
) -> None:
    """users.md row 9: first offset at or after a time, the special timestamps, -1 for no match."""
    assert offsets(cluster, at(timestamp)) == [expected]


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [(-1, (0, -1, 8, 5)), (-2, (0, -1, 3, 2)), (-3, NONE), (1_007_000, (0, 1_007_000, 7, 5)), (1_007_001, NONE)],
)
def test_read_committed_finds_stable_records_only(
    cluster: AdminCluster, timestamp: int, expected: tuple[int, ...]
) -> None:
    """users.md row 9: an unstable offset is never returned, even if it has the largest timestamp."""
    assert offsets(cluster, at(timestamp), isolation_level=READ_COMMITTED) == [expected]


@pytest.mark.parametrize(("timestamp", "since"), [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_special_timestamps_need_their_version(cluster: AdminCluster, timestamp: int, since: int) -> None:
    for version in range(1, 12):
        [(error, *_)] = offsets(cluster, at(timestamp), version=version)
        assert error == (0 if version >= since else ErrorCode.UNSUPPORTED_VERSION)


@pytest.mark.parametrize("timestamp", [-7, -(2**63)])
def test_other_negative_timestamps_are_rejected(cluster: AdminCluster, timestamp: int) -> None:
    assert offsets(cluster, at(timestamp)) == [(ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1)]


def test_unknown_repeated_and_fenced_partitions_are_errors(cluster: AdminCluster) -> None:
    answers = offsets(
        cluster,
        at(-1, "nowhere"),
        at(-1, "orders", 2),
        at(-1, "orders", -1),
        at(-1, epoch=4),
        at(-1, "orders", 1),
        at(-2, "orders", 1),
    )
    repeated, invalid = ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [answer[0] for answer in answers] == [invalid, invalid, invalid, 74, repeated, repeated]
    assert offsets(cluster, at(-1, epoch=6)) == [(75, -1, -1, -1)]
    assert offsets(cluster, at(-1, epoch=5)) == [(0, -1, 10, 5)]


def test_an_empty_partition_has_a_beginning_and_an_end_but_no_times(cluster: AdminCluster) -> None:
    empty = {timestamp: offsets(cluster, at(timestamp, "orders", 1))[0] for timestamp in (-1, -2, -3, 0)}
    assert empty == {-1: (0, -1, 0, 0), -2: (0, -1, 0, 0), -3: NONE, 0: NONE}


@pytest.mark.parametrize("state", [STATE_UNOPENED, STATE_CLOSED])
def test_a_partition_that_its_owner_has_not_opened(cluster: AdminCluster, state: int) -> None:
    """A new topic is empty; a topic older than the process may hold records, and the client must wait."""
    row = cluster.partition("orders").row
    cluster.table.set_state(row, state)
    assert offsets(cluster, at(-1)) == [(0, -1, 0, -1)]
    cluster.restart_controller()
    assert offsets(cluster, at(-1)) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1, -1)]


@pytest.mark.parametrize("version", range(2, 5))
def test_leader_epochs_end_where_the_next_begins(cluster: AdminCluster, version: int) -> None:
    """users.md row 39: leader epochs."""

    def ends(epoch: int, partition: int = 0, current: int = -1, topic: str = "orders") -> tuple[int, ...]:
        part = {"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}
        fields = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [part]}]}
        answer = cluster.call(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, fields)
        [told] = answer.topics[0].partitions
        return told.error_code, told.leader_epoch, told.end_offset

    assert ends(5) == (0, 5, 10)
    assert ends(4) == (0, 4, 7)
    assert ends(3) == (0, 2, 5)
    assert ends(2) == (0, 2, 5)
    assert ends(1) == (0, -1, -1)
    assert ends(9) == (0, -1, -1)
    assert ends(5, partition=7) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert ends(5, topic="nowhere") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert ends(5, current=4)[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert ends(5, current=6)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH


def delete_records(
    cluster: AdminCluster, version: int, *topics: tuple[str, list[tuple[int, int]]], timeout_ms: int = 12_345
) -> Any:
    fields = {
        "topics": [
            {
                "name": name,
                "partitions": [{"partition_index": partition, "offset": offset} for partition, offset in parts],
            }
            for name, parts in topics
        ],
        "timeout_ms": timeout_ms,
    }
    request = cluster.request(ApiKey.DELETE_RECORDS, version, fields)
    return finished(handle_delete_records(*cluster.asked(ApiKey.DELETE_RECORDS, version), request))


def told(cluster: AdminCluster, version: int, answer: Any) -> list[tuple[str, int, int, int]]:
    response = cluster.sent(ApiKey.DELETE_RECORDS, version, answer)
    return [
        (topic.name, part.partition_index, part.error_code, part.low_watermark)
        for topic in response.topics
        for part in topic.partitions
    ]


@pytest.mark.parametrize("version", range(3))
def test_records_are_deleted_by_the_owners_and_the_response_waits(cluster: AdminCluster, version: int) -> None:
    first, second = (cluster.partition("orders", index).row for index in range(2))
    cluster.owner_answers[first] = (0, START_OFFSET.pack(6))
    answer = delete_records(cluster, version, ("orders", [(0, 6), (1, -1)]), ("nowhere", [(0, 0)]))
    assert isinstance(answer, Deferred)
    assert answer.timeout_ms == 12_345
    assert list(cluster.asked_owners) == [(first, 6), (second, -1)]
    assert answer.retry is not None
    late = answer.retry(True)
    assert told(cluster, version, finished(late))[1] == ("orders", 1, ErrorCode.REQUEST_TIMED_OUT, -1)
    assert not answer.is_complete
    completed: list[Any] = []
    answer.bind(completed.append)
    cluster.asked_owners[second, -1](ErrorCode.OFFSET_OUT_OF_RANGE, b"")
    assert told(cluster, version, finished(completed.pop())) == [
        ("orders", 0, 0, 6),
        ("orders", 1, ErrorCode.OFFSET_OUT_OF_RANGE, -1),
        ("nowhere", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]


def test_a_timeout_of_0_gives_up_no_owner(cluster: AdminCluster) -> None:
    """The timeout applies to followers: Kafka's response in librdkafka's test 0081, with 0 ms, has no error."""
    answer = delete_records(cluster, 2, ("orders", [(0, 4)]), timeout_ms=0)
    assert answer.retry(False) is None
    assert answer.timeout_ms == 5_000


def test_a_response_that_is_complete_does_not_wait(cluster: AdminCluster) -> None:
    cluster.owner_answers[cluster.partition("orders").row] = (0, START_OFFSET.pack(4))
    assert told(cluster, 2, delete_records(cluster, 2, ("orders", [(0, 4)]))) == [("orders", 0, 0, 4)]


def test_records_of_compacted_and_internal_topics_stay(cluster: AdminCluster) -> None:
    cluster.create("compacted", configs={"cleanup.policy": "compact"})
    cluster.create("both", configs={"cleanup.policy": "compact,delete"})
    cluster.create("kept", configs={"cleanup.policy": ""})
    cluster.create("__consumer_offsets", 4)
    for name in ("both", "kept"):
        cluster.owner_answers[cluster.partition(name).row] = (0, START_OFFSET.pack(0))
    topics = ("compacted", [(0, 1)]), ("both", [(0, 0)]), ("kept", [(0, 0)]), ("__consumer_offsets", [(0, 1)])
    answer = delete_records(cluster, 2, *topics)
    assert told(cluster, 2, answer) == [
        ("compacted", 0, ErrorCode.POLICY_VIOLATION, -1),
        ("both", 0, 0, 0),
        ("kept", 0, 0, 0),
        ("__consumer_offsets", 0, ErrorCode.INVALID_TOPIC_EXCEPTION, -1),
    ]
