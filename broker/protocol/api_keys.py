"""The APIs by number, and from which version each is flexible (compact lengths and tagged fields, KIP-482).

Which versions are served is said by the broker's registry of API functions, not here.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final


class ApiKey(IntEnum):
    """Kafka's number of an API."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75

    @property
    def text(self) -> str:
        """Kafka's name of the API, as its metrics and its request log have it."""
        return "".join(word.capitalize() for word in self.name.split("_"))


#: Versions up to these are deprecated: 0-2 of Produce are advertised for old librdkafka only, AlterConfigs has given
#: way to IncrementalAlterConfigs (KIP-339), and SASL without SaslAuthenticate to the one with it (KIP-152).
DEPRECATED_UP_TO: Final[Mapping[int, int]] = MappingProxyType(
    {
        ApiKey.PRODUCE: 2,
        ApiKey.SASL_HANDSHAKE: 0,
        ApiKey.ALTER_CONFIGS: 2,
    }
)

FLEXIBLE_FROM: Final[Mapping[int, int]] = MappingProxyType(
    {
        0: 9,  # Produce
        1: 12,  # Fetch
        2: 6,  # ListOffsets
        3: 9,  # Metadata
        8: 8,  # OffsetCommit
        9: 6,  # OffsetFetch
        10: 3,  # FindCoordinator
        11: 6,  # JoinGroup
        12: 4,  # Heartbeat
        13: 4,  # LeaveGroup
        14: 4,  # SyncGroup
        15: 5,  # DescribeGroups
        16: 3,  # ListGroups
        17: 2,  # SaslHandshake: a version that does not exist, so never
        18: 3,  # ApiVersions
        19: 5,  # CreateTopics
        20: 4,  # DeleteTopics
        21: 2,  # DeleteRecords
        22: 2,  # InitProducerId
        23: 4,  # OffsetForLeaderEpoch
        24: 3,  # AddPartitionsToTxn
        25: 3,  # AddOffsetsToTxn
        26: 3,  # EndTxn
        27: 1,  # WriteTxnMarkers
        28: 3,  # TxnOffsetCommit
        29: 2,  # DescribeAcls
        30: 2,  # CreateAcls
        31: 2,  # DeleteAcls
        32: 4,  # DescribeConfigs
        33: 2,  # AlterConfigs
        34: 2,  # AlterReplicaLogDirs
        35: 2,  # DescribeLogDirs
        36: 2,  # SaslAuthenticate
        37: 2,  # CreatePartitions
        38: 2,  # CreateDelegationToken
        39: 2,  # RenewDelegationToken
        40: 2,  # ExpireDelegationToken
        41: 2,  # DescribeDelegationToken
        42: 2,  # DeleteGroups
        43: 2,  # ElectLeaders
        44: 1,  # IncrementalAlterConfigs
        45: 0,  # AlterPartitionReassignments
        46: 0,  # ListPartitionReassignments
        47: 1,  # OffsetDelete: a version that does not exist, so never
        48: 1,  # DescribeClientQuotas
        49: 1,  # AlterClientQuotas
        50: 0,  # DescribeUserScramCredentials
        51: 0,  # AlterUserScramCredentials
        55: 0,  # DescribeQuorum
        57: 0,  # UpdateFeatures
        60: 0,  # DescribeCluster
        61: 0,  # DescribeProducers
        65: 0,  # DescribeTransactions
        66: 0,  # ListTransactions
        68: 0,  # ConsumerGroupHeartbeat
        69: 0,  # ConsumerGroupDescribe
        74: 0,  # ListConfigResources
        75: 0,  # DescribeTopicPartitions
    }
)
"""First flexible version by plain number; a key that is not in here is unknown to this broker."""


ONLY_ANSWERED: Final = frozenset(
    {
        ApiKey.LIST_OFFSETS,
        ApiKey.METADATA,
        ApiKey.OFFSET_FETCH,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.LIST_GROUPS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.LIST_CONFIG_RESOURCES,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    }
)
"""APIs that change nothing: what their client does not wait for need not be done."""


def is_flexible(api_key: int, version: int) -> bool:
    """Whether the bodies of this version use compact lengths and tagged fields.

    KeyError for an unknown key.
    """
    return version >= FLEXIBLE_FROM[api_key]


def request_header_version(api_key: int, version: int) -> int:
    """2 for flexible requests, else 1 (`C06`)."""
    return 2 if version >= FLEXIBLE_FROM[api_key] else 1


def response_header_version(api_key: int, version: int) -> int:
    """1 for flexible responses, else 0; ApiVersions always 0, so that any client can read it (`C06`)."""
    return 1 if api_key != ApiKey.API_VERSIONS and version >= FLEXIBLE_FROM[api_key] else 0
