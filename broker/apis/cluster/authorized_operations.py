"""The bit fields that say what a client may do; without an authorizer, everything (KIP-430)."""

from __future__ import annotations

NOT_ASKED_FOR = -2147483648

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = 3, 4, 5, 6, 7, 8
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = 9, 10, 11, 12


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS = _bits(_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
CLUSTER_OPERATIONS = _bits(
    _CREATE, _ALTER, _DESCRIBE, _CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE
)
GROUP_OPERATIONS = _bits(_READ, _DELETE, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)


def topic_operations(asked_for: bool) -> int:
    """Return the bit field for a topic."""
    return TOPIC_OPERATIONS if asked_for else NOT_ASKED_FOR


def cluster_operations(asked_for: bool) -> int:
    """Return the bit field for the cluster."""
    return CLUSTER_OPERATIONS if asked_for else NOT_ASKED_FOR


def group_operations(asked_for: bool) -> int:
    """Return the bit field for a group."""
    return GROUP_OPERATIONS if asked_for else NOT_ASKED_FOR
