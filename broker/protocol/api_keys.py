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
    FIND_COORDINATOR = 10
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    INCREMENTAL_ALTER_CONFIGS = 44
    DESCRIBE_CLUSTER = 60
    DESCRIBE_TOPIC_PARTITIONS = 75


FLEXIBLE_FROM: Final[Mapping[int, int]] = MappingProxyType(
    {
        0: 9,  # Produce
        1: 12,  # Fetch
        2: 6,  # ListOffsets
        3: 9,  # Metadata
        10: 3,  # FindCoordinator
        17: 2,  # SaslHandshake: a version that does not exist, so never
        18: 3,  # ApiVersions
        19: 5,  # CreateTopics
        20: 4,  # DeleteTopics
        21: 2,  # DeleteRecords
        22: 2,  # InitProducerId
        23: 4,  # OffsetForLeaderEpoch
        32: 4,  # DescribeConfigs
        33: 2,  # AlterConfigs
        35: 2,  # DescribeLogDirs
        36: 2,  # SaslAuthenticate
        37: 2,  # CreatePartitions
        44: 1,  # IncrementalAlterConfigs
        60: 0,  # DescribeCluster
        75: 0,  # DescribeTopicPartitions
    }
)
"""First flexible version by plain number; a key that is not in here is unknown to this broker."""


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
