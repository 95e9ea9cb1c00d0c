"""Kafka's APIs that this broker does not support, by reason. Printed into docs/api-versions.md.

Together with the registry in ``broker.apis.table`` it names every API in Kafka's schemas; a test compares.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from rotunda.broker.protocol.schema.table import APIS

NOT_SERVED: Mapping[str, str] = MappingProxyType(
    {
        "between the controllers of a quorum: this broker's metadata has one writer and no quorum": (
            "Vote BeginQuorumEpoch EndQuorumEpoch FetchSnapshot UpdateRaftVoter"
        ),
        "between Kafka's brokers and controllers, on listeners that clients do not use": (
            "AlterPartition Envelope BrokerRegistration BrokerHeartbeat AllocateProducerIds ControllerRegistration "
            "AssignReplicasToDirs"
        ),
        "the only broker of a cluster cannot leave it": "UnregisterBroker UnregisterController",
        "between Kafka's brokers, for the state of share groups: here processes of the broker change it": (
            "InitializeShareGroupState ReadShareGroupState WriteShareGroupState DeleteShareGroupState "
            "ReadShareGroupStateSummary"
        ),
        "no quorum, so no voters to change": "AddRaftVoter RemoveRaftVoter",
        "streams groups (KIP-1071) are not supported; Kafka Streams uses the classic protocol by default": (
            "StreamsGroupHeartbeat StreamsGroupDescribe StreamsGroupTopologyDescriptionUpdate"
        ),
    }
)
"""Names of APIs, by reason."""


def not_served() -> list[int]:
    """Return the keys of these APIs."""
    keys = _keys()
    return [keys[name] for names in NOT_SERVED.values() for name in names.split()]


def describe_rows() -> list[str]:
    """Return the rows of the table of these APIs, one per reason."""
    keys = _keys()
    return [
        f"| {', '.join(f'{_upper(name)} ({keys[name]})' for name in names.split())} | {reason} |"
        for reason, names in NOT_SERVED.items()
    ]


def _keys() -> dict[str, int]:
    return {name: key for key, name in APIS.items()}


def _upper(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()
