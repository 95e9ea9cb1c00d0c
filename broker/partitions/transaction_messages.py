"""Messages between the owners of partitions and transaction coordinators.

Runs in handler processes. The receiver of a transactional batch verifies its membership with the coordinator; a
coordinator has the owners of a transaction's partitions write the markers that end it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

#: (topic, partition)
TopicPartition = tuple[str, int]


class Producer(NamedTuple):
    """A producer id and epoch from a request."""

    producer_id: int
    epoch: int


NOBODY = Producer(-1, -1)


class Membership(NamedTuple):
    """Partitions to verify as part of a producer's transaction. Unless ``verify_only``, missing ones are added."""

    transactional_id: str
    producer: Producer
    verify_only: bool
    partitions: Sequence[TopicPartition]


#: Sends the check to the coordinator of a transactional id; the callback gets an error code for each partition.
VerifyMembership = Callable[[Membership, Callable[[list[int]], None]], None]


class Marker(NamedTuple):
    """The marker to write to one partition at the end of a transaction."""

    topic: str
    partition: int
    producer_id: int
    epoch: int
    coordinator_epoch: int
    commit: bool
    transaction_version: int
