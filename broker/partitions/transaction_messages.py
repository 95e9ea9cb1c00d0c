"""The messages between owners of partitions and coordinators of transactions.

Runs in handler processes. A part of a transaction asks its coordinator whether it belongs to it; a coordinator has the
owners of the partitions of a transaction write markers at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

#: (topic, partition)
TopicPartition = tuple[str, int]


class Producer(NamedTuple):
    """A producer id with an epoch, as a request names them."""

    producer_id: int
    epoch: int


NOBODY = Producer(-1, -1)


class Membership(NamedTuple):
    """Whether partitions belong to a producer's transaction. Unless ``verify_only``, they do from now on."""

    transactional_id: str
    producer: Producer
    verify_only: bool
    partitions: Sequence[TopicPartition]


#: Asks the coordinator of a transactional id; the callback gets an error code for each partition.
AskMembership = Callable[[Membership, Callable[[list[int]], None]], None]


class Marker(NamedTuple):
    """What is written into one partition at the end of a transaction."""

    topic: str
    partition: int
    producer_id: int
    epoch: int
    coordinator_epoch: int
    commit: bool
    transaction_version: int
