"""Published offsets: the first and last of a partition's log, published by its owner. Any handler reads them."""

from __future__ import annotations

from typing import NamedTuple

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.metadata.metadata_cache import PartitionInfo, TopicInfo
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.shm.tables.partitions import STATE_OPEN

UNKNOWN_EPOCH = -1


class PartitionEnds(NamedTuple):
    """Published offsets: the log start, the log end (one past the last committed), and the last stable offset."""

    start: int
    end: int
    stable: int
    leader_epoch: int


#: A partition that was never opened has no record.
_EMPTY = PartitionEnds(0, 0, 0, UNKNOWN_EPOCH)


def published_ends(broker: BrokerContext, topic: TopicInfo, partition: PartitionInfo) -> PartitionEnds | None:
    """Return the owner's published offsets, or None if it is still opening a log that may have records.

    The row of a topic that was just created may still contain its former partition: it is valid once it is open.
    """
    table, row = broker.partitions.table, partition.row
    if table.state(row) == STATE_OPEN:
        return PartitionEnds(
            table.read_start(row), table.read_end(row), table.read_stable(row), table.leader_epoch(row)
        )
    return None if broker.metadata.existed_at_start(topic) else _EMPTY


def published_leader_epoch(broker: BrokerContext, partition: PartitionInfo) -> int:
    """Return the leader epoch, or -1 while the partition is not open."""
    table = broker.partitions.table
    return table.leader_epoch(partition.row) if table.state(partition.row) == STATE_OPEN else UNKNOWN_EPOCH


def epoch_error(current_leader_epoch: int, ends: PartitionEnds) -> int:
    """Return the error for a client with ``current_leader_epoch``; 0 if it is right (KIP-320).

    A negative epoch skips the check.
    """
    if current_leader_epoch < 0 or ends.leader_epoch == UNKNOWN_EPOCH or current_leader_epoch == ends.leader_epoch:
        return 0
    if current_leader_epoch < ends.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH
