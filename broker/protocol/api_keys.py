"""The APIs by number: from which version each is flexible (KIP-482), which target handles it, whether it only reads.

The versions served and the functions are in the broker's registry of APIs.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

_NEVER: Final = 1 << 15


class Owner(NamedTuple):
    """The target of an API's requests: any, the controller, or the coordinator of the id that a request names.

    Produce has a rule of its own (`routing.route`). `topic` stores the ids. The id is the first string of the body, or
    the second; from version `array_from` on it is the first in an array.
    """

    topic: str = ""
    array_from: int = _NEVER
    is_second: bool = False


ANY: Final = Owner()
#: Changes of metadata, serialised.
CONTROLLER: Final = Owner("controller")
GROUP: Final = Owner("__consumer_offsets")
GROUPS: Final = GROUP._replace(array_from=0)
TRANSACTIONAL_ID: Final = Owner("__transaction_state")
TRANSACTIONAL_IDS: Final = TRANSACTIONAL_ID._replace(array_from=0)
#: The owner of a share group's state, which is not its coordinator.
SHARE_GROUP: Final = Owner("__share_group_state")

#: It changes nothing, so its response can be skipped when the client no longer waits for it.
READ_ONLY: Final = True


class ApiKey(IntEnum):
    """Kafka's number of an API. A row: the number, the first flexible version, the owner, whether it only reads.

    OffsetDelete and SaslHandshake have no flexible version: the one named does not exist.
    """

    _value_: int
    flexible_from: int
    owner: Owner
    is_read_only: bool

    def __new__(cls, key: int, flexible_from: int = 0, owner: Owner = ANY, is_read_only: bool = False) -> ApiKey:
        member = int.__new__(cls, key)
        member._value_ = key
        member.flexible_from = flexible_from
        member.owner = owner
        member.is_read_only = is_read_only
        return member

    PRODUCE = 0, 9
    FETCH = 1, 12
    LIST_OFFSETS = 2, 6, ANY, READ_ONLY
    METADATA = 3, 9, ANY, READ_ONLY
    OFFSET_COMMIT = 8, 8, GROUP
    OFFSET_FETCH = 9, 6, GROUP._replace(array_from=8), READ_ONLY
    FIND_COORDINATOR = 10, 3
    JOIN_GROUP = 11, 6, GROUP
    HEARTBEAT = 12, 4, GROUP
    LEAVE_GROUP = 13, 4, GROUP
    SYNC_GROUP = 14, 4, GROUP
    DESCRIBE_GROUPS = 15, 5, GROUPS, READ_ONLY
    LIST_GROUPS = 16, 3, ANY, READ_ONLY
    SASL_HANDSHAKE = 17, 2
    API_VERSIONS = 18, 3
    CREATE_TOPICS = 19, 5, CONTROLLER
    DELETE_TOPICS = 20, 4, CONTROLLER
    DELETE_RECORDS = 21, 2
    INIT_PRODUCER_ID = 22, 2, TRANSACTIONAL_ID
    OFFSET_FOR_LEADER_EPOCH = 23, 4, ANY, READ_ONLY
    ADD_PARTITIONS_TO_TXN = 24, 3, TRANSACTIONAL_ID._replace(array_from=4)
    ADD_OFFSETS_TO_TXN = 25, 3, TRANSACTIONAL_ID
    END_TXN = 26, 3, TRANSACTIONAL_ID
    WRITE_TXN_MARKERS = 27, 1
    TXN_OFFSET_COMMIT = 28, 3, GROUP._replace(is_second=True)
    DESCRIBE_ACLS = 29, 2, ANY, READ_ONLY
    CREATE_ACLS = 30, 2, CONTROLLER
    DELETE_ACLS = 31, 2, CONTROLLER
    DESCRIBE_CONFIGS = 32, 4, ANY, READ_ONLY
    ALTER_CONFIGS = 33, 2, CONTROLLER
    ALTER_REPLICA_LOG_DIRS = 34, 2
    DESCRIBE_LOG_DIRS = 35, 2, ANY, READ_ONLY
    SASL_AUTHENTICATE = 36, 2
    CREATE_PARTITIONS = 37, 2, CONTROLLER
    CREATE_DELEGATION_TOKEN = 38, 2
    RENEW_DELEGATION_TOKEN = 39, 2
    EXPIRE_DELEGATION_TOKEN = 40, 2
    DESCRIBE_DELEGATION_TOKEN = 41, 2
    DELETE_GROUPS = 42, 2, GROUPS
    ELECT_LEADERS = 43, 2
    INCREMENTAL_ALTER_CONFIGS = 44, 1, CONTROLLER
    ALTER_PARTITION_REASSIGNMENTS = 45, 0
    LIST_PARTITION_REASSIGNMENTS = 46, 0, ANY, READ_ONLY
    OFFSET_DELETE = 47, 1, GROUP
    DESCRIBE_CLIENT_QUOTAS = 48, 1, ANY, READ_ONLY
    ALTER_CLIENT_QUOTAS = 49, 1, CONTROLLER
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50, 0, ANY, READ_ONLY
    ALTER_USER_SCRAM_CREDENTIALS = 51, 0, CONTROLLER
    DESCRIBE_QUORUM = 55, 0, ANY, READ_ONLY
    UPDATE_FEATURES = 57, 0, CONTROLLER
    DESCRIBE_CLUSTER = 60, 0, ANY, READ_ONLY
    DESCRIBE_PRODUCERS = 61, 0, ANY, READ_ONLY
    DESCRIBE_TRANSACTIONS = 65, 0, TRANSACTIONAL_IDS, READ_ONLY
    LIST_TRANSACTIONS = 66, 0, ANY, READ_ONLY
    CONSUMER_GROUP_HEARTBEAT = 68, 0, GROUP
    CONSUMER_GROUP_DESCRIBE = 69, 0, GROUPS, READ_ONLY
    GET_TELEMETRY_SUBSCRIPTIONS = 71, 0
    PUSH_TELEMETRY = 72, 0
    LIST_CONFIG_RESOURCES = 74, 0, ANY, READ_ONLY
    DESCRIBE_TOPIC_PARTITIONS = 75, 0, ANY, READ_ONLY
    SHARE_GROUP_HEARTBEAT = 76, 0, GROUP
    SHARE_GROUP_DESCRIBE = 77, 0, GROUPS, READ_ONLY
    SHARE_FETCH = 78, 0, SHARE_GROUP
    SHARE_ACKNOWLEDGE = 79, 0, SHARE_GROUP
    DESCRIBE_SHARE_GROUP_OFFSETS = 90, 0, GROUPS, READ_ONLY
    ALTER_SHARE_GROUP_OFFSETS = 91, 0, GROUP
    DELETE_SHARE_GROUP_OFFSETS = 92, 0, GROUP

    @property
    def text(self) -> str:
        """Kafka's name of the API, as its metrics have it."""
        return "".join(word.capitalize() for word in self.name.split("_"))


def text_of(name: str) -> str:
    """Return Kafka's name of an API for its name in the request log: ListOffsets for LIST_OFFSETS."""
    key = ApiKey.__members__.get(name)
    return name if key is None else key.text


#: Versions up to these are deprecated: 0-2 of Produce are advertised for old librdkafka only, AlterConfigs was replaced
#: by IncrementalAlterConfigs (KIP-339), and SASL without SaslAuthenticate by the one with it (KIP-152).
DEPRECATED_UP_TO: Final[Mapping[int, int]] = MappingProxyType(
    {
        ApiKey.PRODUCE: 2,
        ApiKey.SASL_HANDSHAKE: 0,
        ApiKey.ALTER_CONFIGS: 2,
    }
)

FLEXIBLE_FROM: Final[Mapping[int, int]] = MappingProxyType({int(key): key.flexible_from for key in ApiKey})
"""First flexible version by API key; other keys are unknown to this broker."""


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
