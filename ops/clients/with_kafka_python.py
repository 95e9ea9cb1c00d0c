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
        futures = [self._send_one(record) for record in records]
        return [future if isinstance(future, str) else outcome_of(future) for future in futures]

    def _send_one(self, record: ToSend) -> object:
        try:
            return self._producer.send(self._topic, record.value, record.key, partition=record.partition)
        except KafkaError as failure:
            return text_of(failure)

    def begin(self) -> None:
        translated(self._producer.begin_transaction)

    def send_offsets(self, offsets: Mapping[int, int], member: KafkaPythonConsumer) -> None:
        translated(
            self._producer.send_offsets_to_transaction, member.places(offsets), member.library.config["group_id"]
        )

    def commit(self) -> None:
        translated(self._producer.commit_transaction)

    def abort(self) -> None:
        translated(self._producer.abort_transaction)

    def close(self) -> None:
        """Drop records in flight."""
        self._producer.close(timeout=0)


class KafkaPythonConsumer:
    """A consumer of one topic: a reader of partitions, or a member of a classic group."""

    def __init__(self, bootstrap: str, topic: str, group: str | None = None, **settings: object) -> None:
        self._topic, self.group = topic, group
        self.library = translated(
            KafkaConsumer,
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            reconnect_backoff_max_ms=RECONNECT_MS,
            **settings,
        )

    def poll(self, seconds: float = POLL_SECONDS) -> list[Record]:
        batches = translated(self.library.poll, timeout_ms=int(seconds * 1000))
        records = (each for batch in batches.values() for each in batch)
        return [Record(each.partition, each.offset, each.key, each.value) for each in records]

    def assignment(self) -> set[int]:
        return {place.partition for place in self.library.assignment()}

    def ends(self) -> dict[int, int]:
        ends = translated(self.library.end_offsets, list(self.library.assignment()))
        return {place.partition: end for place, end in ends.items()}

    def positions(self) -> dict[int, int]:
        return {place.partition: translated(self.library.position, place) for place in self.library.assignment()}

    def places(self, offsets: Mapping[int, int]) -> dict[Place, OffsetAndMetadata]:
        """Return offsets as the library has them."""
        return {Place(self._topic, each): OffsetAndMetadata(offset, "", -1) for each, offset in offsets.items()}

    def commit(self, offsets: Mapping[int, int]) -> None:
        translated(self.library.commit, self.places(offsets))

    def close(self) -> None:
        """Close it, and leave the group."""
        self.library.close()


def reader(bootstrap: str, topic: str, isolation: Isolation, offsets: Mapping[int, int]) -> KafkaPythonConsumer:
    """Return a consumer with all partitions assigned."""
    settings = {"client_id": f"{topic}-reader", "isolation_level": isolation.value, "auto_offset_reset": "none"}
    consumer = KafkaPythonConsumer(bootstrap, topic, **settings)
    consumer.library.assign(list(consumer.places(offsets)))
    for partition, offset in offsets.items():
        consumer.library.seek(Place(topic, partition), offset)
    return consumer


def member(bootstrap: str, topic: str, membership: Membership, assigned: Assigned | None) -> KafkaPythonConsumer:
    assignors = {"partition_assignment_strategy": [ASSIGNORS[membership.assignor]]} if membership.assignor else {}
    consumer = KafkaPythonConsumer(
        bootstrap,
        topic,
        membership.group,
        client_id=membership.group,
        group_instance_id=membership.instance or None,
        auto_offset_reset="earliest",
        session_timeout_ms=10_000,
        heartbeat_interval_ms=1000,
        **assignors,
    )
    consumer.library.subscribe([topic], listener=Listener(consumer.library, assigned) if assigned else None)
    return consumer


class Listener(ConsumerRebalanceListener):
    """Passes on the newly assigned partitions, and clears the consumer's positions of revoked ones.

    kafka-python 3.0.12 keeps positions from one assignment to the next where Java's consumer begins with none. A member
    that never got the response to its SyncGroup misses a generation, in which others may have read and committed, and
    would continue from its old position. In the same way it keeps the response to an OffsetFetch that was too late.
    """

    def __init__(self, consumer: KafkaConsumer, assigned: Assigned) -> None:
        self._consumer, self._assigned = consumer, assigned

    def on_partitions_assigned(self, assigned: Sequence[Place]) -> None:
        self._assigned([place.partition for place in assigned])

    def on_partitions_revoked(self, revoked: Sequence[Place]) -> None:
        """Forget positions and committed offsets, as Java's consumer does before it joins again."""
        kept = set(self._consumer.assignment()).difference(revoked)
        self._consumer._subscription.assign_from_subscribed(sorted(kept))
        self._consumer._coordinator._offset_fetch_futures.clear()


def outcome_of(future: object) -> int | str:
    """Wait for a record's future and return its offset, or the error."""
    try:
        offset = future.get(timeout=3 * WAIT_SECONDS).offset
    except KafkaError as failure:
        return text_of(failure)
    return offset if offset is not None and offset >= 0 else ACKNOWLEDGED


def translated(function: Callable[..., Value], *arguments: object, **named: object) -> Value:
    """Call a function of the library; its exception becomes a ClientError."""
    try:
        return function(*arguments, **named)
    except KafkaError as failure:
        raise ClientError(failure, remedy_for(failure)) from failure


def remedy_for(failure: KafkaError) -> Remedy:
    if type(failure).__name__ in FATAL:
        return Remedy.REPLACE
    return Remedy.RETRY if failure.retriable or type(failure).__name__ == "KafkaTimeoutError" else Remedy.ABORT


def make_topic(bootstrap: str, name: str, partitions: int) -> None:
    client = translated(KafkaAdminClient, bootstrap_servers=bootstrap)
    wanted = {name: {"num_partitions": partitions, "replication_factor": 1}}
    translated(client.create_topics, wanted, wait_for_metadata=True)
    client.close()


def library(bootstrap: str) -> Library:
    logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)
    return Library(
        "kafka-python",
        partial(KafkaPythonProducer, bootstrap),
        partial(reader, bootstrap),
        partial(member, bootstrap),
        partial(make_topic, bootstrap),
        protocols=("classic",),
        plain_repeats=True,
        records_per_second=50,
    )
