"""CreateTopics, CreatePartitions and DeleteTopics under a quota of controller mutations (`E15`)."""

from __future__ import annotations

from typing import Any

import pytest

from rotunda.broker.metadata.configs.quota_entities import CLIENT_ID
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from tests.support.admin_cluster import AdminCluster

EXCEEDED = int(ErrorCode.THROTTLING_QUOTA_EXCEEDED)

#: A bucket of 11, as there are 11 windows of a second.
RATE = 1.0


@pytest.fixture
def limited(cluster: AdminCluster) -> AdminCluster:
    """Return a cluster whose client may create a partition per second, with a burst of 11."""
    cluster.clock.advance_ms(1)
    cluster.quotas.follow({((CLIENT_ID, "test"),): {"controller_mutation_rate": RATE}}, cluster.config)
    return cluster


def outcome(response: Any, rows: Any) -> tuple[int, list[int]]:
    return response.throttle_time_ms, [each.error_code for each in rows]


def create(cluster: AdminCluster, version: int, *topics: tuple[str, int]) -> tuple[int, list[int]]:
    wanted = [{"name": name, "num_partitions": count, "replication_factor": 1} for name, count in topics]
    response = cluster.call(
        ApiKey.CREATE_TOPICS,
        version,
        {"topics": wanted, "timeout_ms": 1000, "validate_only": False},
    )
    cluster.settle()
    return outcome(response, response.topics)


def test_e15_a_strict_quota_rejects_topic_by_topic_while_below_empty(limited: AdminCluster) -> None:
    """E15: a burst of 11 admits 16 partitions; then 5 are missing, which takes 5 s."""
    assert create(limited, 7, ("a", 16)) == (0, [0])
    assert create(limited, 7, ("b", 1), ("c", 1)) == (5000, [EXCEEDED, EXCEEDED])
    assert limited.metadata.topic("b") is None
    limited.clock.advance_ms(5000)
    assert create(limited, 7, ("b", 1), ("c", 1)) == (1000, [0, EXCEEDED])


def test_e15_older_versions_are_let_through_and_throttled(limited: AdminCluster) -> None:
    assert create(limited, 5, ("a", 16)) == (5000, [0])
    assert create(limited, 5, ("b", 5)) == (10_000, [0])


def test_e15_changes_rejected_for_other_reasons_cost_nothing(limited: AdminCluster) -> None:
    assert create(limited, 7, ("a", 10)) == (0, [0])
    assert create(limited, 7, ("a", 10), ("b", 1)) == (0, [int(ErrorCode.TOPIC_ALREADY_EXISTS), 0])
    assert create(limited, 7, ("c", 1)) == (0, [0])
    assert create(limited, 7, ("d", 1)) == (1000, [EXCEEDED])


@pytest.mark.parametrize(("version", "expected"), [(5, (5000, [EXCEEDED])), (4, (21_000, [0]))])
def test_e15_a_deletion_costs_the_deleted_partitions(
    limited: AdminCluster, version: int, expected: tuple[int, list[int]]
) -> None:
    create(limited, 7, ("a", 16))
    response = limited.call(ApiKey.DELETE_TOPICS, version, {"topic_names": ["a"], "timeout_ms": 1000})
    assert outcome(response, response.responses) == expected


@pytest.mark.parametrize(("version", "expected"), [(3, (5000, [EXCEEDED])), (2, (9000, [0]))])
def test_e15_only_added_partitions_cost_quota(
    limited: AdminCluster, version: int, expected: tuple[int, list[int]]
) -> None:
    create(limited, 7, ("a", 16))
    fields = {"topics": [{"name": "a", "count": 20, "assignments": None}], "timeout_ms": 1000, "validate_only": False}
    response = limited.call(ApiKey.CREATE_PARTITIONS, version, fields)
    assert outcome(response, response.results) == expected
