"""The marks in Kafka's definitions: the error codes of messages, and the partitions in requests."""

from __future__ import annotations

from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.schema.marks import asked_partitions, error_paths


def test_error_codes_are_found_at_any_depth_outer_ones_first() -> None:
    assert error_paths(ApiKey.OFFSET_FETCH) == (
        ("error_code",),
        ("groups", "error_code"),
        ("topics", "partitions", "error_code"),
        ("groups", "topics", "partitions", "error_code"),
    )
    assert error_paths(ApiKey.CREATE_TOPICS) == (("topics", "error_code"),), "settings that cannot be read are no error"
    assert error_paths(ApiKey.ADD_PARTITIONS_TO_TXN)[-1][-1] == "partition_error_code"
    assert [key.name for key in ApiKey if not error_paths(key)] == []


def test_partitions_are_those_that_a_request_asks_about() -> None:
    assert {key for key in ApiKey if asked_partitions(key) is not None} == {
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.OFFSET_COMMIT,
        ApiKey.DELETE_RECORDS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.OFFSET_DELETE,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.DESCRIBE_QUORUM,
    }
    asked = asked_partitions(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    assert asked is not None
    assert (asked.topic, asked.partition) == ("topic", "partition")
    asked = asked_partitions(ApiKey.DESCRIBE_LOG_DIRS)
    assert asked is not None
    assert (asked.topic, asked.partition) == ("topic", ""), "partitions may be plain numbers"
