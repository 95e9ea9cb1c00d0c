"""The APIs of Kafka that this broker does not serve, each with the reason. Printed into docs/api-versions.md.

Together with the registry in ``broker.apis.table`` it names every API that Kafka's schemas know; a test compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_QUORUM = "between the controllers of a quorum: this broker's metadata has one writer and no quorum"
_BETWEEN = "between Kafka's brokers and controllers, on listeners that clients do not use"
_SHARE = "share groups (KIP-932) are not built; clients use consumer groups by default"
_STREAMS = "streams groups (KIP-1071) are not built; Kafka Streams uses the classic protocol by default"
_TELEMETRY = (
    "client metrics (KIP-714): nothing here receives them, and as in a Kafka without a plugin that does, clients are "
    "not asked to push, whatever subscriptions there are"
)
_VOTERS = "there is no quorum whose voters could change"

#: API key -> (its name, why it is not served).
NOT_SERVED: Mapping[int, tuple[str, str]] = MappingProxyType(
    {
        52: ("VOTE", _QUORUM),
        53: ("BEGIN_QUORUM_EPOCH", _QUORUM),
        54: ("END_QUORUM_EPOCH", _QUORUM),
        56: ("ALTER_PARTITION", _BETWEEN),
        58: ("ENVELOPE", _BETWEEN),
        59: ("FETCH_SNAPSHOT", _QUORUM),
        62: ("BROKER_REGISTRATION", _BETWEEN),
        63: ("BROKER_HEARTBEAT", _BETWEEN),
        64: ("UNREGISTER_BROKER", "the only broker of a cluster cannot leave it"),
        67: ("ALLOCATE_PRODUCER_IDS", _BETWEEN),
        70: ("CONTROLLER_REGISTRATION", _BETWEEN),
        71: ("GET_TELEMETRY_SUBSCRIPTIONS", _TELEMETRY),
        72: ("PUSH_TELEMETRY", _TELEMETRY),
        73: ("ASSIGN_REPLICAS_TO_DIRS", _BETWEEN),
        76: ("SHARE_GROUP_HEARTBEAT", _SHARE),
        77: ("SHARE_GROUP_DESCRIBE", _SHARE),
        78: ("SHARE_FETCH", _SHARE),
        79: ("SHARE_ACKNOWLEDGE", _SHARE),
        80: ("ADD_RAFT_VOTER", _VOTERS),
        81: ("REMOVE_RAFT_VOTER", _VOTERS),
        82: ("UPDATE_RAFT_VOTER", _QUORUM),
        83: ("INITIALIZE_SHARE_GROUP_STATE", _SHARE),
        84: ("READ_SHARE_GROUP_STATE", _SHARE),
        85: ("WRITE_SHARE_GROUP_STATE", _SHARE),
        86: ("DELETE_SHARE_GROUP_STATE", _SHARE),
        87: ("READ_SHARE_GROUP_STATE_SUMMARY", _SHARE),
        88: ("STREAMS_GROUP_HEARTBEAT", _STREAMS),
        89: ("STREAMS_GROUP_DESCRIBE", _STREAMS),
        90: ("DESCRIBE_SHARE_GROUP_OFFSETS", _SHARE),
        91: ("ALTER_SHARE_GROUP_OFFSETS", _SHARE),
        92: ("DELETE_SHARE_GROUP_OFFSETS", _SHARE),
    }
)


def describe_rows() -> list[str]:
    """Return the rows of the table of these APIs, one a reason."""
    by_reason: dict[str, list[str]] = {}
    for key, (name, reason) in sorted(NOT_SERVED.items()):
        by_reason.setdefault(reason, []).append(f"{name} ({key})")
    return [f"| {', '.join(names)} | {reason} |" for reason, names in by_reason.items()]
