"""A member of a share group, and the partitions of a topic with state. Pure; both are immutable values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rotunda.broker.coordinator.consumer.assignment import NO_PARTITIONS, Assignment

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class ShareGroupMember:
    """The state of a member in the log."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    epoch: int = JOIN_EPOCH
    #: The previous epoch: a member that did not receive its current one sends it again.
    previous_epoch: int = JOIN_EPOCH
    assigned: Assignment = field(default_factory=lambda: NO_PARTITIONS)


class StatePartitions(NamedTuple):
    """The partitions of a topic whose state is initialized, or under initialization."""

    topic_name: str
    partitions: frozenset[int]
