"""kafka-python with the interface of `clients`. Its plain producer resends a request after a timeout."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer
from kafka import TopicPartition as Place
from kafka.admin import KafkaAdminClient
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from ops.clients.library import (
    ACKNOWLEDGED,
    WAIT_SECONDS,
    Assigned,
    ClientError,
    Isolation,
    Kind,
    Library,
    Membership,
    Record,
    Remedy,
    ToSend,
    text_of,
)

Value = TypeVar("Value")
POLL_SECONDS = 5.0
ASSIGNORS = {"range": RangePartitionAssignor, "sticky": StickyPartitionAssignor}
#: Maximum delay before a client that lost its broker reconnects; the default, 30 s, is for many brokers.
RECONNECT_MS = 500
#: After a lost connection its sender may find records to send, and send none, in a loop until they have expired.
TRANSACTION_LIMITS = {"request_timeout_ms": 10_000, "delivery_timeout_ms": 15_000}
#: Errors after which a transactional producer is of no more use.
FATAL = ("ProducerFencedError", "InvalidProducerEpochError", "IllegalStateError", "OutOfOrderSequenceNumberError")


class KafkaPythonProducer:
    """A producer; each record has a future."""

    def __init__(self, bootstrap: str, kind: Kind, topic: str, transactional_id: str) -> None:
        self._topic = topic
        settings = {
            "bootstrap_servers": bootstrap,
            "client_id": topic,
            "acks": "all",
            "enable_idempotence": kind is not Kind.PLAIN,
            "reconnect_backoff_max_ms": RECONNECT_MS,
        }
        if kind is Kind.TRANSACTIONAL:
            settings |= {"transactional_id": transactional_id, **TRANSACTION_LIMITS}
        self._producer = translated(KafkaProducer, **settings)
        if kind is Kind.TRANSACTIONAL:
            translated(self._producer.init_transactions)

    def send(self, records: Sequence[ToSend]) -> list[int | str]:
        """Send all and wait for each."""
        futures = [self._send_one(record) for record in records]
        return [future if isinstance(future, str) else outcome_of(future) for future in futures]

    def _send_one(self, record: ToSend) -> object:
        try:
            return self._producer.send(self._topic, record.value, record.key, partition=record.partition)
        except KafkaError as failure:
            return text_of(failure)

    def begin(self) -> None:
        """Begin a transaction."""
        translated(self._producer.begin_transaction)

    def send_offsets(self, offsets: Mapping[int, int], member: KafkaPythonMember) -> None:
        """Commit offsets of a group with the transaction."""
        translated(self._producer.send_offsets_to_transaction, member.places(offsets), member.group)

    def commit(self) -> None:
        """Commit the transaction."""
        translated(self._producer.commit_transaction)

    def abort(self) -> None:
        """Abort the transaction."""
        translated(self._producer.abort_transaction)

    def close(self) -> None:
        """Drop records in flight."""
        self._producer.close(timeout=0)


class KafkaPythonReader:
    """A consumer with all partitions assigned."""

    def __init__(self, bootstrap: str, topic: str, isolation: Isolation, offsets: Mapping[int, int]) -> None:
        self._places = {partition: Place(topic, partition) for partition in offsets}
        self._consumer = translated(
            KafkaConsumer,
            bootstrap_servers=bootstrap,
            client_id=f"{topic}-reader",
            enable_auto_commit=False,
            isolation_level=isolation.value,
            auto_offset_reset="none",
            reconnect_backoff_max_ms=RECONNECT_MS,
        )
        self._consumer.assign(list(self._places.values()))
        for partition, offset in offsets.items():
            self._consumer.seek(self._places[partition], offset)

    def poll(self) -> list[Record]:
        """Return the next records."""
        return polled(self._consumer)

    def ends(self) -> dict[int, int]:
        """Return the end of each partition."""
        ends = translated(self._consumer.end_offsets, list(self._places.values()))
        return {place.partition: end for place, end in ends.items()}

    def positions(self) -> dict[int, int]:
        """Return the next offset to read, by partition."""
        return {partition: translated(self._consumer.position, place) for partition, place in self._places.items()}

    def close(self) -> None:
        """Close it."""
        self._consumer.close()


class Listener(ConsumerRebalanceListener):
    """Passes on the newly assigned partitions, and clears the consumer's positions of revoked ones.

    kafka-python 3.0.12 keeps positions from one assignment to the next where Java's consumer begins with none. A member
    that never got the response to its SyncGroup misses a generation, in which others may have read and committed, and
    would continue from its old position. In the same way it keeps the response to an OffsetFetch that was too late.
    """

    def __init__(self, assigned: Assigned, forget: Callable[[Sequence[Place]], None]) -> None:
        self._assigned = assigned
        self._forget = forget

    def on_partitions_assigned(self, assigned: Sequence[Place]) -> None:
        """Pass them on."""
        self._assigned([place.partition for place in assigned])

    def on_partitions_revoked(self, revoked: Sequence[Place]) -> None:
        """Forget them."""
        self._forget(revoked)


class KafkaPythonMember:
    """A member of a classic group."""

    def __init__(self, bootstrap: str, topic: str, membership: Membership, assigned: Assigned | None) -> None:
        self._topic, self.group = topic, membership.group
        assignors = {"partition_assignment_strategy": [ASSIGNORS[membership.assignor]]} if membership.assignor else {}
        self._consumer = translated(
            KafkaConsumer,
            bootstrap_servers=bootstrap,
            client_id=membership.group,
            group_id=membership.group,
            group_instance_id=membership.instance or None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=10_000,
            heartbeat_interval_ms=1000,
            reconnect_backoff_max_ms=RECONNECT_MS,
            **assignors,
        )
        self._consumer.subscribe([topic], listener=Listener(assigned, self._forget) if assigned else None)

    def _forget(self, revoked: Sequence[Place]) -> None:
        """Forget positions and committed offsets, as Java's consumer does before it joins again."""
        kept = set(self._consumer.assignment()).difference(revoked)
        self._consumer._subscription.assign_from_subscribed(sorted(kept))
        self._consumer._coordinator._offset_fetch_futures.clear()

    def poll(self, seconds: float = POLL_SECONDS) -> list[Record]:
        """Return the next records."""
        return polled(self._consumer, seconds)

    def assignment(self) -> set[int]:
        """Return its partitions."""
        return {place.partition for place in self._consumer.assignment()}

    def places(self, offsets: Mapping[int, int]) -> dict[Place, OffsetAndMetadata]:
        """Return offsets as the library has them."""
        return {Place(self._topic, each): OffsetAndMetadata(offset, "", -1) for each, offset in offsets.items()}

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Commit and wait."""
        translated(self._consumer.commit, self.places(offsets))

    def close(self) -> None:
        """Leave."""
        self._consumer.close()


def outcome_of(future: object) -> int | str:
    """Wait for a record's future and return its offset, or the error."""
    try:
        offset = future.get(timeout=3 * WAIT_SECONDS).offset
    except KafkaError as failure:
        return text_of(failure)
    return offset if offset is not None and offset >= 0 else ACKNOWLEDGED


def polled(consumer: KafkaConsumer, seconds: float = POLL_SECONDS) -> list[Record]:
    """Return the records that a consumer has."""
    batches = translated(consumer.poll, timeout_ms=int(seconds * 1000))
    return [Record(each.partition, each.offset, each.key, each.value) for batch in batches.values() for each in batch]


def translated(function: Callable[..., Value], *arguments: object, **named: object) -> Value:
    """Call a function of the library; its exception becomes a ClientError."""
    try:
        return function(*arguments, **named)
    except KafkaError as failure:
        raise ClientError(failure, remedy_for(failure)) from failure


def remedy_for(failure: KafkaError) -> Remedy:
    """Return the remedy for an exception of the library."""
    if type(failure).__name__ in FATAL:
        return Remedy.REPLACE
    return Remedy.RETRY if failure.retriable or type(failure).__name__ == "KafkaTimeoutError" else Remedy.ABORT


def make_topic(bootstrap: str, name: str, partitions: int) -> None:
    """Create a topic."""
    client = translated(KafkaAdminClient, bootstrap_servers=bootstrap)
    wanted = {name: {"num_partitions": partitions, "replication_factor": 1}}
    translated(client.create_topics, wanted, wait_for_metadata=True)
    client.close()


def library(bootstrap: str) -> Library:
    """Return the library with the address of its broker."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)
    return Library(
        "kafka-python",
        partial(KafkaPythonProducer, bootstrap),
        partial(KafkaPythonReader, bootstrap),
        partial(KafkaPythonMember, bootstrap),
        partial(make_topic, bootstrap),
        protocols=("classic",),
        plain_repeats=True,
        records_per_second=50,
    )
