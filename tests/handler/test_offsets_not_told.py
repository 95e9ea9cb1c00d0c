"""OffsetFetch while a coordinator's commits are unavailable: the response must not be "no offset"."""

from __future__ import annotations

import errno
from typing import Any
from unittest import mock

import pytest

from rotunda.broker.coordinator import coordinator_loader
from rotunda.broker.log.log_reader import LogReader
from rotunda.broker.log.segments.log_segment import LogSegment
from rotunda.broker.protocol.routing import GROUP_TOPIC, coordinator_partition
from tests.support.groups.requests import GROUP_PARTITIONS, OFFSET_FETCH, Member, call, committed
from tests.support.stepped_broker import SteppedBroker
from tests.support.transactional import answer_of, send

GROUP = "group"
PLACE = ("topic", 0)
NOT_COORDINATOR = 16


def asked(broker: SteppedBroker, version: int) -> dict[str, Any]:
    info = broker.topic("topic")
    topics = [{"name": "topic", "topic_id": info.topic_id, "partition_indexes": [0, 1]}]
    group = {"group_id": GROUP, "topics": topics}
    return {"groups": [group]} if version >= 8 else group


def errors_of(answer: Any, version: int) -> tuple[int, list[int]]:
    """Return the top-level or group error, and the errors of partitions."""
    told = answer.groups[0] if version >= 8 else answer
    parts = [int(part.error_code) for topic in told.topics for part in topic.partitions]
    return int(told.error_code) if version >= 2 else 0, parts


@pytest.mark.parametrize("version", range(1, 11))
def test_a_failed_offset_load_is_an_error_in_every_api(broker: SteppedBroker, version: int) -> None:
    """Kafka's error, in Kafka's field; below version 8 also in each partition, the only field that aiokafka reads."""
    member = Member(broker, GROUP)
    assert member.commit({PLACE: 7}) == [0]
    with mock.patch.object(LogSegment, "write", side_effect=OSError(errno.ENOSPC, "full")):
        member.commit_request({PLACE: 8})
        waiting = send(broker.client(), OFFSET_FETCH, version, asked(broker, version))
        broker.settle()
    expected = 0 if version < 2 else NOT_COORDINATOR
    partitions = [NOT_COORDINATOR] * 2 if version < 8 else []
    assert errors_of(answer_of(waiting), version) == (expected, partitions)
    assert committed(broker, GROUP, [PLACE]) == [(7, 0)]


def owner_of_group(broker: SteppedBroker) -> tuple[int, int]:
    """Return the handler that coordinates the group, and the partition."""
    partition = coordinator_partition(GROUP, GROUP_PARTITIONS)
    return broker.partition(GROUP_TOPIC, partition).owner, partition


@pytest.mark.parametrize("failure", ["nothing found", "short read", "error"])
def test_a_partition_that_cannot_be_read_back_whole_is_not_coordinated_until_it_can(
    broker: SteppedBroker, failure: str
) -> None:
    assert Member(broker, GROUP).commit({PLACE: 7}) == [0]
    owner, _ = owner_of_group(broker)
    patches = {
        "nothing found": mock.patch.object(LogReader, "locate", return_value=None),
        "short read": mock.patch.object(coordinator_loader, "_read", return_value=b""),
        "error": mock.patch.object(coordinator_loader, "_read", side_effect=OSError(errno.EMFILE, "too many")),
    }
    with patches[failure]:
        broker.replace(owner)
        answer = call(broker, broker.client(), OFFSET_FETCH, 7, asked(broker, 7))
        assert errors_of(answer, 7) == (NOT_COORDINATOR, [NOT_COORDINATOR] * 2)
    broker.clock.advance_ms(1_100)
    broker.settle()
    assert committed(broker, GROUP, [PLACE]) == [(7, 0)]
