"""The fields of each API that the request log reads: errors of its answers, partitions of its requests.

Used by handler processes and the controller. Each API of the table (`apis.table`) has a row here, so that nobody has to
look through a message for what might be in it. Knows the names of fields and nothing of how messages are read.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.protocol.api_keys import ApiKey


class PartitionFields(NamedTuple):
    """Where a decoded request names partitions.

    ``path`` leads to them, through the topics unless each brings its topic; ``topic`` has the name of that. Where no
    ``partition`` is named, they are plain numbers. ``isolation_level`` is a field of the request.
    """

    path: tuple[str, ...]
    topic: str
    partition: str = ""
    isolation_level: str = ""


class LogFields(NamedTuple):
    """Where error codes stand in an answer, outer ones before inner ones, and partitions in a request.

    The last name of a path is that of the error code, those before are arrays. What a version does not have is left
    out of its answers.
    """

    errors: tuple[tuple[str, ...], ...]
    partitions: PartitionFields | None = None


def _fields(errors: str, partitions: PartitionFields | None = None) -> LogFields:
    """Return what a row declares; paths are separated by blanks, and names in them by dots."""
    return LogFields(tuple(tuple(path.split(".")) for path in errors.split()), partitions)


def _of_topics(topic: str, partition: str = "") -> PartitionFields:
    return PartitionFields(("topics", "partitions"), topic, partition)


_BY_PARTITION = "topics.partitions.error_code"

FIELDS: dict[ApiKey, LogFields] = {
    ApiKey.LIST_OFFSETS: _fields(
        "parts.error_code", PartitionFields(("parts",), "topic_name", "partition", "isolation_level")
    ),
    ApiKey.METADATA: _fields("error_code topics.error_code topics.partitions.error_code"),
    ApiKey.OFFSET_COMMIT: _fields(_BY_PARTITION, _of_topics("name", "partition")),
    ApiKey.OFFSET_FETCH: _fields(f"error_code groups.error_code {_BY_PARTITION} groups.topics.partitions.error_code"),
    ApiKey.FIND_COORDINATOR: _fields("error_code coordinators.error_code"),
    ApiKey.JOIN_GROUP: _fields("error_code"),
    ApiKey.HEARTBEAT: _fields("error_code"),
    ApiKey.LEAVE_GROUP: _fields("error_code members.error_code"),
    ApiKey.SYNC_GROUP: _fields("error_code"),
    ApiKey.DESCRIBE_GROUPS: _fields("groups.error_code"),
    ApiKey.LIST_GROUPS: _fields("error_code"),
    ApiKey.SASL_HANDSHAKE: _fields("error_code"),
    ApiKey.API_VERSIONS: _fields("error_code"),
    ApiKey.CREATE_TOPICS: _fields("topics.error_code"),
    ApiKey.DELETE_TOPICS: _fields("responses.error_code"),
    ApiKey.DELETE_RECORDS: _fields(_BY_PARTITION, _of_topics("name", "partition_index")),
    ApiKey.INIT_PRODUCER_ID: _fields("error_code"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _fields(_BY_PARTITION, _of_topics("topic", "partition")),
    ApiKey.ADD_PARTITIONS_TO_TXN: _fields(
        "error_code results_by_topic_v3_and_below.results_by_partition.partition_error_code "
        "results_by_transaction.topic_results.results_by_partition.partition_error_code"
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: _fields("error_code"),
    ApiKey.TXN_OFFSET_COMMIT: _fields(_BY_PARTITION, _of_topics("name", "partition_index")),
    ApiKey.DELETE_GROUPS: _fields("results.error_code"),
    ApiKey.OFFSET_DELETE: _fields(f"error_code {_BY_PARTITION}", _of_topics("name", "partition_index")),
    ApiKey.END_TXN: _fields("error_code"),
    ApiKey.WRITE_TXN_MARKERS: _fields("markers.topics.partitions.error_code"),
    ApiKey.DESCRIBE_ACLS: _fields("error_code"),
    ApiKey.CREATE_ACLS: _fields("results.error_code"),
    ApiKey.DELETE_ACLS: _fields("filter_results.error_code filter_results.matching_acls.error_code"),
    ApiKey.DESCRIBE_CONFIGS: _fields("results.error_code"),
    ApiKey.ALTER_CONFIGS: _fields("responses.error_code"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _fields("results.partitions.error_code"),
    ApiKey.DESCRIBE_LOG_DIRS: _fields("error_code results.error_code", _of_topics("topic")),
    ApiKey.SASL_AUTHENTICATE: _fields("error_code"),
    ApiKey.CREATE_PARTITIONS: _fields("results.error_code"),
    ApiKey.CREATE_DELEGATION_TOKEN: _fields("error_code"),
    ApiKey.RENEW_DELEGATION_TOKEN: _fields("error_code"),
    ApiKey.EXPIRE_DELEGATION_TOKEN: _fields("error_code"),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _fields("error_code"),
    ApiKey.ELECT_LEADERS: _fields("error_code replica_election_results.partition_result.error_code"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _fields("responses.error_code"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _fields(
        "error_code responses.partitions.error_code", _of_topics("name", "partition_index")
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _fields("error_code"),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _fields("error_code"),
    ApiKey.ALTER_CLIENT_QUOTAS: _fields("entries.error_code"),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _fields("error_code results.error_code"),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _fields("results.error_code"),
    ApiKey.DESCRIBE_QUORUM: _fields(f"error_code {_BY_PARTITION}", _of_topics("topic_name", "partition_index")),
    ApiKey.UPDATE_FEATURES: _fields("error_code results.error_code"),
    ApiKey.DESCRIBE_CLUSTER: _fields("error_code"),
    ApiKey.DESCRIBE_PRODUCERS: _fields(_BY_PARTITION),
    ApiKey.DESCRIBE_TRANSACTIONS: _fields("transaction_states.error_code"),
    ApiKey.LIST_TRANSACTIONS: _fields("error_code"),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _fields("error_code"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _fields("groups.error_code"),
    ApiKey.LIST_CONFIG_RESOURCES: _fields("error_code"),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _fields("topics.error_code topics.partitions.error_code"),
}
