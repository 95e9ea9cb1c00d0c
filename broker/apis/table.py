"""The registry of supported APIs: api key, versions, codec, function. ApiVersions is derived from it.

Used by handler processes and the controller. A missing key is not advertised and closes the connection that sends it
(``C07``); everything advertised is supported, except the rejected versions of Produce (``C12``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from rotunda.broker.apis.acls.acl_changes import handle_create_acls, handle_delete_acls
from rotunda.broker.apis.acls.describe_acls import handle_describe_acls
from rotunda.broker.apis.cluster.api_versions import handle_api_versions, is_api_versions_cacheable
from rotunda.broker.apis.cluster.client_telemetry import (
    handle_get_telemetry_subscriptions,
    handle_push_telemetry,
)
from rotunda.broker.apis.cluster.describe_cluster import handle_describe_cluster
from rotunda.broker.apis.cluster.describe_quorum import handle_describe_quorum
from rotunda.broker.apis.cluster.update_features import handle_update_features
from rotunda.broker.apis.configs.alter_configs import handle_alter_configs, handle_incremental_alter_configs
from rotunda.broker.apis.configs.client_quotas import handle_alter_client_quotas, handle_describe_client_quotas
from rotunda.broker.apis.configs.config_resources import handle_list_config_resources
from rotunda.broker.apis.configs.describe_configs import handle_describe_configs
from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.apis.groups.consumer_group_heartbeat import handle_consumer_group_heartbeat
from rotunda.broker.apis.groups.delete_groups import handle_delete_groups
from rotunda.broker.apis.groups.describe_groups import handle_describe_groups
from rotunda.broker.apis.groups.describe_share_group_offsets import handle_describe_share_group_offsets
from rotunda.broker.apis.groups.find_coordinator import handle_find_coordinator
from rotunda.broker.apis.groups.heartbeat import handle_heartbeat
from rotunda.broker.apis.groups.join_group import handle_join_group
from rotunda.broker.apis.groups.leave_group import handle_leave_group
from rotunda.broker.apis.groups.list_groups import handle_list_groups
from rotunda.broker.apis.groups.modern_group_describe import handle_consumer_group_describe, handle_share_group_describe
from rotunda.broker.apis.groups.offset_commit import handle_offset_commit
from rotunda.broker.apis.groups.offset_delete import handle_offset_delete
from rotunda.broker.apis.groups.offset_fetch import handle_offset_fetch
from rotunda.broker.apis.groups.share_acknowledge import handle_share_acknowledge
from rotunda.broker.apis.groups.share_group_heartbeat import handle_share_group_heartbeat
from rotunda.broker.apis.groups.share_group_offsets import (
    handle_alter_share_group_offsets,
    handle_delete_share_group_offsets,
)
from rotunda.broker.apis.groups.sync_group import handle_sync_group
from rotunda.broker.apis.guard import guarded
from rotunda.broker.apis.not_served import describe_rows
from rotunda.broker.apis.topics.alter_replica_log_dirs import handle_alter_replica_log_dirs
from rotunda.broker.apis.topics.create_partitions import handle_create_partitions
from rotunda.broker.apis.topics.create_topics import handle_create_topics
from rotunda.broker.apis.topics.delete_records import handle_delete_records
from rotunda.broker.apis.topics.delete_topics import handle_delete_topics
from rotunda.broker.apis.topics.describe_log_dirs import handle_describe_log_dirs
from rotunda.broker.apis.topics.describe_producers import handle_describe_producers
from rotunda.broker.apis.topics.describe_topic_partitions import handle_describe_topic_partitions
from rotunda.broker.apis.topics.elect_leaders import handle_elect_leaders
from rotunda.broker.apis.topics.list_offsets import handle_list_offsets
from rotunda.broker.apis.topics.metadata import handle_metadata, is_metadata_cacheable
from rotunda.broker.apis.topics.offset_for_leader_epoch import handle_offset_for_leader_epoch
from rotunda.broker.apis.topics.partition_reassignments import (
    handle_alter_partition_reassignments,
    handle_list_partition_reassignments,
)
from rotunda.broker.apis.transactions.add_offsets_to_txn import handle_add_offsets_to_txn
from rotunda.broker.apis.transactions.add_partitions_to_txn import handle_add_partitions_to_txn
from rotunda.broker.apis.transactions.describe_transactions import handle_describe_transactions
from rotunda.broker.apis.transactions.end_txn import handle_end_txn
from rotunda.broker.apis.transactions.init_producer_id import handle_init_producer_id
from rotunda.broker.apis.transactions.list_transactions import handle_list_transactions
from rotunda.broker.apis.transactions.txn_offset_commit import handle_txn_offset_commit
from rotunda.broker.apis.transactions.write_txn_markers import handle_write_txn_markers
from rotunda.broker.apis.unsupported.rejections import REFUSALS
from rotunda.broker.apis.users.scram_credentials import (
    handle_alter_user_scram_credentials,
    handle_describe_user_scram_credentials,
)
from rotunda.broker.ipc.request import Request
from rotunda.broker.protocol.api_keys import ApiKey

#: (request, broker, body) to a response, or to a delayed one (`api_calls`).
ApiFunction = Callable[[Request, BrokerContext, Any], Any]


class Api(NamedTuple):
    """One API: the supported versions, and the function, None where the request loop handles requests itself.

    ``advertised_min`` is lower than ``min_version`` where clients need to see versions that are rejected. Where
    responses depend on request, listener and metadata alone, ``is_cacheable`` returns whether one is valid until the
    metadata change. An API's owner is declared in `protocol.api_keys`, its required rights in `security.acl.checks`.
    """

    key: ApiKey
    min_version: int
    max_version: int
    function: ApiFunction | None
    advertised_min: int
    note: str = ""
    is_cacheable: Callable[[Any], bool] | None = None


def _hot(key: ApiKey, versions: tuple[int, int], advertised_min: int, note: str = "") -> Api:
    """Return an API for which the request loop has a path of its own."""
    return Api(key, *versions, None, advertised_min, note)


def _api(
    key: ApiKey,
    versions: tuple[int, int],
    function: ApiFunction,
    note: str = "",
    *,
    is_cacheable: Callable[[Any], bool] | None = None,
) -> Api:
    return Api(key, *versions, guarded(key, function), versions[0], note, is_cacheable)


def _rejected(key: ApiKey, versions: tuple[int, int], note: str) -> Api:
    return _api(key, versions, REFUSALS[key], note)


_REFUSED_PRODUCE = "0-2 are advertised for old librdkafka and rejected by closing the connection, as in Kafka"
_SESSIONS = "fetch sessions are in the memory of their connection's handler"
_SHARE_SESSIONS = "share sessions are in the memory of the handler that owns the group's state"
_SASL = "served by processors during authentication and re-authentication; otherwise ILLEGAL_SASL_STATE"
_NO_TOKENS = "DELEGATION_TOKEN_AUTH_DISABLED, or DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"
_ONE_REPLICA = "each partition has a single replica: ELECTION_NOT_NEEDED"
_ONE_BROKER = "to this broker: no change; to any other: INVALID_REPLICA_ASSIGNMENT"
_NONE_MOVES = "always empty"
_ONE_DIRECTORY = "to the only directory: no change; to any other: LOG_DIR_NOT_FOUND"
_QUOTAS = "an ip may be a host name; the quota of an unknown name has no effect, Kafka rejects it"
_ONE_VOTER = "this broker as leader and only voter; offsets are numbers of metadata changes"
_FEATURES = (
    "transaction.version 0-2, group.version 0-1 and share.version 0-2; metadata.version is that of Kafka 4.4 (33) "
    "and, as in Kafka, cannot be downgraded; the levels of eligible.leader.replicas.version, kraft.version and "
    "streams.version are stored, without effect"
)
_NO_TIERS = "no remote storage: local offsets are the log's, tiered offsets are -1"
_NO_TWO_PHASES = "version 6 (two-phase commit, KIP-939) is not served; Kafka 4 does not list it either"
_HAVE_SETTINGS = "topics, brokers, groups, loggers (levels, until the next start) and client metrics subscriptions"
_KNOWN_SETTINGS = "rejects unknown names, which Kafka stores for plugins, and settings of streams groups"
_REPLACES = (
    "topics, brokers, groups and client metrics subscriptions; as in Kafka, levels of "
    f"loggers change by INCREMENTAL_ALTER_CONFIGS alone; {_KNOWN_SETTINGS}"
)
_CHANGES = f"{_HAVE_SETTINGS}; {_KNOWN_SETTINGS}"
_NOT_REPLICATED = "replication factor 1; replicas can only be assigned to this broker"
_NO_ELIGIBLE = "eligible leader replicas (KIP-966): none without replication"
_BROKERS_ONLY = "describes brokers; for controllers MISMATCHED_ENDPOINT_TYPE"
_CONSUMER_GROUPS = (
    "uniform and range assignors; patterns of up to 2,000 RE2 instructions; online migration between this protocol "
    "and the classic one; rack ids are described, but do not affect assignments"
)
_SHARE_GROUPS = "the first response has the assignment, in Kafka the second one"
_TELEMETRY = "advertised and served with client.telemetry.receiver.enable"
_RESOURCES = "topics, the broker, its loggers, groups with settings, client metrics subscriptions"
_PATTERNS = "patterns of up to 2,000 RE2 instructions; fewer with transactional ids of more than 500 bytes"

API_TABLE: tuple[Api, ...] = (
    _hot(ApiKey.PRODUCE, (3, 13), 0, _REFUSED_PRODUCE),
    _hot(ApiKey.FETCH, (4, 18), 4, _SESSIONS),
    _api(ApiKey.LIST_OFFSETS, (1, 11), handle_list_offsets, _NO_TIERS),
    _api(ApiKey.METADATA, (0, 13), handle_metadata, is_cacheable=is_metadata_cacheable),
    _api(ApiKey.OFFSET_COMMIT, (2, 10), handle_offset_commit),
    _api(ApiKey.OFFSET_FETCH, (1, 10), handle_offset_fetch),
    _api(ApiKey.FIND_COORDINATOR, (0, 6), handle_find_coordinator),
    _api(ApiKey.JOIN_GROUP, (0, 9), handle_join_group),
    _api(ApiKey.HEARTBEAT, (0, 4), handle_heartbeat),
    _api(ApiKey.LEAVE_GROUP, (0, 5), handle_leave_group),
    _api(ApiKey.SYNC_GROUP, (0, 5), handle_sync_group),
    _api(ApiKey.DESCRIBE_GROUPS, (0, 6), handle_describe_groups),
    _api(ApiKey.LIST_GROUPS, (0, 5), handle_list_groups),
    _rejected(ApiKey.SASL_HANDSHAKE, (0, 1), _SASL),
    _api(ApiKey.API_VERSIONS, (0, 5), handle_api_versions, is_cacheable=is_api_versions_cacheable),
    _api(ApiKey.CREATE_TOPICS, (2, 7), handle_create_topics, _NOT_REPLICATED),
    _api(ApiKey.DELETE_TOPICS, (1, 6), handle_delete_topics),
    _api(ApiKey.DELETE_RECORDS, (0, 2), handle_delete_records),
    _api(ApiKey.INIT_PRODUCER_ID, (0, 5), handle_init_producer_id, _NO_TWO_PHASES),
    _api(ApiKey.OFFSET_FOR_LEADER_EPOCH, (2, 4), handle_offset_for_leader_epoch),
    _api(ApiKey.ADD_PARTITIONS_TO_TXN, (0, 5), handle_add_partitions_to_txn),
    _api(ApiKey.ADD_OFFSETS_TO_TXN, (0, 4), handle_add_offsets_to_txn),
    _api(ApiKey.TXN_OFFSET_COMMIT, (0, 6), handle_txn_offset_commit),
    _api(ApiKey.DELETE_GROUPS, (0, 3), handle_delete_groups),
    _api(ApiKey.OFFSET_DELETE, (0, 0), handle_offset_delete),
    _api(ApiKey.END_TXN, (0, 5), handle_end_txn),
    _api(ApiKey.WRITE_TXN_MARKERS, (1, 2), handle_write_txn_markers),
    _api(ApiKey.DESCRIBE_ACLS, (1, 3), handle_describe_acls),
    _api(ApiKey.CREATE_ACLS, (1, 3), handle_create_acls),
    _api(ApiKey.DELETE_ACLS, (1, 3), handle_delete_acls),
    _api(ApiKey.DESCRIBE_CONFIGS, (1, 4), handle_describe_configs, _HAVE_SETTINGS),
    _api(ApiKey.ALTER_CONFIGS, (0, 2), handle_alter_configs, _REPLACES),
    _api(ApiKey.ALTER_REPLICA_LOG_DIRS, (1, 2), handle_alter_replica_log_dirs, _ONE_DIRECTORY),
    _api(ApiKey.DESCRIBE_LOG_DIRS, (1, 5), handle_describe_log_dirs),
    _rejected(ApiKey.SASL_AUTHENTICATE, (0, 2), _SASL),
    _api(ApiKey.CREATE_PARTITIONS, (0, 3), handle_create_partitions, _NOT_REPLICATED),
    _rejected(ApiKey.CREATE_DELEGATION_TOKEN, (1, 3), _NO_TOKENS),
    _rejected(ApiKey.RENEW_DELEGATION_TOKEN, (1, 2), _NO_TOKENS),
    _rejected(ApiKey.EXPIRE_DELEGATION_TOKEN, (1, 2), _NO_TOKENS),
    _rejected(ApiKey.DESCRIBE_DELEGATION_TOKEN, (1, 3), _NO_TOKENS),
    _api(ApiKey.ELECT_LEADERS, (0, 2), handle_elect_leaders, _ONE_REPLICA),
    _api(ApiKey.INCREMENTAL_ALTER_CONFIGS, (0, 1), handle_incremental_alter_configs, _CHANGES),
    _api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, (0, 1), handle_alter_partition_reassignments, _ONE_BROKER),
    _api(ApiKey.LIST_PARTITION_REASSIGNMENTS, (0, 0), handle_list_partition_reassignments, _NONE_MOVES),
    _api(ApiKey.DESCRIBE_CLIENT_QUOTAS, (0, 1), handle_describe_client_quotas),
    _api(ApiKey.ALTER_CLIENT_QUOTAS, (0, 1), handle_alter_client_quotas, _QUOTAS),
    _api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, (0, 0), handle_describe_user_scram_credentials),
    _api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, (0, 0), handle_alter_user_scram_credentials),
    _api(ApiKey.DESCRIBE_QUORUM, (0, 2), handle_describe_quorum, _ONE_VOTER),
    _api(ApiKey.UPDATE_FEATURES, (0, 2), handle_update_features, _FEATURES),
    _api(ApiKey.DESCRIBE_CLUSTER, (0, 2), handle_describe_cluster, _BROKERS_ONLY),
    _api(ApiKey.DESCRIBE_PRODUCERS, (0, 0), handle_describe_producers),
    _api(ApiKey.DESCRIBE_TRANSACTIONS, (0, 0), handle_describe_transactions),
    _api(ApiKey.LIST_TRANSACTIONS, (0, 2), handle_list_transactions, _PATTERNS),
    _api(ApiKey.CONSUMER_GROUP_HEARTBEAT, (0, 1), handle_consumer_group_heartbeat, _CONSUMER_GROUPS),
    _api(ApiKey.CONSUMER_GROUP_DESCRIBE, (0, 1), handle_consumer_group_describe),
    _api(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, (0, 0), handle_get_telemetry_subscriptions, _TELEMETRY),
    _api(ApiKey.PUSH_TELEMETRY, (0, 0), handle_push_telemetry, _TELEMETRY),
    _api(ApiKey.LIST_CONFIG_RESOURCES, (0, 1), handle_list_config_resources, _RESOURCES),
    _api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, (0, 0), handle_describe_topic_partitions, _NO_ELIGIBLE),
    _api(ApiKey.SHARE_GROUP_HEARTBEAT, (1, 1), handle_share_group_heartbeat, _SHARE_GROUPS),
    _api(ApiKey.SHARE_GROUP_DESCRIBE, (1, 1), handle_share_group_describe),
    _hot(ApiKey.SHARE_FETCH, (1, 2), 1, _SHARE_SESSIONS),
    _api(ApiKey.SHARE_ACKNOWLEDGE, (1, 2), handle_share_acknowledge),
    _api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, (0, 1), handle_describe_share_group_offsets),
    _api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, (0, 0), handle_alter_share_group_offsets),
    _api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, (0, 0), handle_delete_share_group_offsets),
)

APIS: dict[int, Api] = {int(api.key): api for api in API_TABLE}
if len(APIS) != len(API_TABLE):
    raise RuntimeError("an api key is registered twice")


#: The APIs of client metrics.
_OF_TELEMETRY = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)


def advertised(*, has_telemetry: bool) -> tuple[tuple[int, int, int], ...]:
    """Return (api key, lowest, highest version) of every API, in the format of ApiVersions."""
    served = (api for api in API_TABLE if has_telemetry or api.key not in _OF_TELEMETRY)
    return tuple((int(api.key), api.advertised_min, api.max_version) for api in served)


_PAGE_HEAD = """\
# APIs and versions

The versions are those of Kafka 4. Remarks name every version and field that is missing. Printed from
`broker/apis/table.py`, which dispatches requests.

| key | API | versions served | remarks |
|---|---|---|---|"""

_NOT_SERVED_HEAD = """
## Not served

These APIs are not advertised. A request for one closes its connection, as in Kafka.

| APIs | why not |
|---|---|"""


def describe_markdown() -> str:
    """Return the text of docs/api-versions.md."""
    served = [
        f"| {int(api.key)} | {api.key.name} | {api.min_version}-{api.max_version} | {api.note} |"
        for api in sorted(API_TABLE)
    ]
    return "\n".join([_PAGE_HEAD, *served, _NOT_SERVED_HEAD, *describe_rows(), ""])
