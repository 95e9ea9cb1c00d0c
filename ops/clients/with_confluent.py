"""confluent-kafka: librdkafka's clients with the interface of `clients`. Its plain producer never sends twice.

Even without retries it resends the requests in flight when it bootstraps again. It does so whenever its last connection
has closed, even if it has reconnected by then: it drops that connection, and treats the requests sent there as not
sent. So bootstrapping again is disabled.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

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

#: librdkafka logs every disconnection to standard error.
SILENT = logging.Logger("librdkafka", logging.CRITICAL + 1)
POLL_SECONDS = 0.2
#: Members of a group see a rebalance with the response.
HEARTBEAT_MS = 1000
BATCH = 500
PRODUCER_SETTINGS: dict[Kind, dict[str, object]] = {
    Kind.IDEMPOTENT: {"enable.idempotence": True},
    Kind.TRANSACTIONAL: {"transaction.timeout.ms": 60_000},
    Kind.PLAIN: {
        "acks": "all",
        "retries": 0,
        "message.timeout.ms": 30_000,
        "metadata.recovery.strategy": "none",
    },
}


class ConfluentProducer:
    """A producer; its callbacks report errors, record by record."""

    def __init__(self, bootstrap: str, kind: Kind, topic: str, transactional_id: str) -> None:
        self._topic = topic
        settings = {"bootstrap.servers": bootstrap, "client.id": topic, "linger.ms": 1, **PRODUCER_SETTINGS[kind]}
        if kind is Kind.TRANSACTIONAL:
            settings["transactional.id"] = transactional_id
        self._producer = Producer(settings, logger=SILENT)
        if kind is Kind.TRANSACTIONAL:
            translated(self._producer.init_transactions, WAIT_SECONDS)

    def send(self, records: Sequence[ToSend]) -> list[int | str]:
        """Send all and wait for each."""
        outcomes: list[int | str] = ["never settled"] * len(records)

        def delivered(index: int, error: KafkaError | None, message: Message) -> None:
            if error is not None:
                outcomes[index] = f"KafkaError: {error.str()}"
            else:
                offset = message.offset()
                outcomes[index] = offset if offset is not None and offset >= 0 else ACKNOWLEDGED

        for index, record in enumerate(records):
            try:
                self._producer.produce(
                    self._topic, record.value, record.key, record.partition, on_delivery=partial(delivered, index)
                )
            except KafkaException as failure:
                outcomes[index] = text_of(failure)
        is_waiting = True
        while is_waiting:
            # The library raises a fatal error here, perhaps in the middle of a callback; records keep their outcomes.
            with suppress(KafkaException, SystemError):
                is_waiting = self._producer.flush(WAIT_SECONDS) > 0
        return outcomes

    def begin(self) -> None:
        """Begin a transaction."""
        translated(self._producer.begin_transaction)

    def send_offsets(self, offsets: Mapping[int, int], member: ConfluentMember) -> None:
        """Commit offsets of a group with the transaction."""
        translated(self._producer.send_offsets_to_transaction, member.places(offsets), member.metadata(), WAIT_SECONDS)

    def commit(self) -> None:
        """Commit the transaction."""
        translated(self._producer.commit_transaction, WAIT_SECONDS)

    def abort(self) -> None:
        """Abort the transaction."""
        translated(self._producer.abort_transaction, WAIT_SECONDS)

    def close(self) -> None:
        """Drop records in flight."""
        self._producer.purge()


class ConfluentReader:
    """A consumer with all partitions assigned."""

    def __init__(self, bootstrap: str, topic: str, isolation: Isolation, offsets: Mapping[int, int]) -> None:
        self._topic = topic
        self._partitions = list(offsets)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": f"{topic}-reader",
                "group.id": f"{topic}-none",
                "enable.auto.commit": False,
                "isolation.level": isolation.value,
                "auto.offset.reset": "error",
            },
            logger=SILENT,
        )
        self._consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in offsets.items()])

    def poll(self) -> list[Record]:
        """Return the next records."""
        return polled(self._consumer)

    def ends(self) -> dict[int, int]:
        """Return the end of each partition."""
        return {
            partition: translated(
                self._consumer.get_watermark_offsets, TopicPartition(self._topic, partition), WAIT_SECONDS
            )[1]
            for partition in self._partitions
        }

    def positions(self) -> dict[int, int]:
        """Return the next offset to read, by partition."""
        places = translated(self._consumer.position, [TopicPartition(self._topic, each) for each in self._partitions])
        return {place.partition: max(0, place.offset) for place in places}

    def close(self) -> None:
        """Close it."""
        self._consumer.close()


class ConfluentMember:
    """A member of a group, of either protocol."""

    def __init__(self, bootstrap: str, topic: str, membership: Membership, assigned: Assigned | None) -> None:
        self._topic = topic
        settings: dict[str, object] = {
            "bootstrap.servers": bootstrap,
            "group.id": membership.group,
            "client.id": membership.group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "group.protocol": membership.protocol,
        }
        is_classic = membership.protocol == "classic"
        if is_classic:
            settings |= {"session.timeout.ms": 10_000, "heartbeat.interval.ms": HEARTBEAT_MS}
        if membership.assignor:
            settings["partition.assignment.strategy" if is_classic else "group.remote.assignor"] = membership.assignor
        if membership.instance:
            settings["group.instance.id"] = membership.instance
        self._consumer = Consumer(settings, logger=SILENT)
        if assigned is None:
            self._consumer.subscribe([topic])
        else:
            self._consumer.subscribe([topic], on_assign=lambda _, places: assigned([each.partition for each in places]))

    def poll(self, seconds: float = POLL_SECONDS) -> list[Record]:
        """Return the next records."""
        return polled(self._consumer, seconds)

    def assignment(self) -> set[int]:
        """Return its partitions."""
        return {place.partition for place in translated(self._consumer.assignment)}

    def places(self, offsets: Mapping[int, int]) -> list[TopicPartition]:
        """Return offsets as the library has them."""
        return [TopicPartition(self._topic, partition, offset) for partition, offset in offsets.items()]

    def metadata(self) -> object:
        """Return the library's description of it."""
        return self._consumer.consumer_group_metadata()

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Commit and wait."""
        done = translated(self._consumer.commit, offsets=self.places(offsets), asynchronous=False)
        for place in done:
            if place.error is not None:
                raise ClientError(KafkaException(place.error), Remedy.RETRY)

    def close(self) -> None:
        """Leave."""
        self._consumer.close()


def polled(consumer: Consumer, seconds: float = POLL_SECONDS) -> list[Record]:
    """Return the records that a consumer has. ClientError for an error without any, or one that it does not survive."""
    records = []
    fault = None
    for message in translated(consumer.consume, BATCH, seconds):
        error = message.error()
        if error is None:
            records.append(Record(message.partition(), message.offset(), message.key(), message.value()))
        elif fault is None or fault.remedy is not Remedy.REPLACE:
            ends_here = error.code() == KafkaError._AUTO_OFFSET_RESET or error.fatal()
            fault = ClientError(KafkaException(error), Remedy.REPLACE if ends_here else Remedy.RETRY)
    if fault is not None and (fault.remedy is Remedy.REPLACE or not records):
        raise fault
    return records


def translated(function: object, *arguments: object, **named: object) -> object:
    """Call a function of the library; its exception becomes a ClientError."""
    try:
        return function(*arguments, **named)
    except KafkaException as failure:
        raise ClientError(failure, remedy_for(failure.args[0])) from failure


def remedy_for(error: KafkaError) -> Remedy:
    """Return librdkafka's own remedy for an error."""
    if error.fatal():
        return Remedy.REPLACE
    return Remedy.ABORT if error.txn_requires_abort() else Remedy.RETRY


def make_topic(bootstrap: str, name: str, partitions: int) -> None:
    """Create a topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    translated(admin.create_topics([NewTopic(name, partitions, 1)])[name].result, WAIT_SECONDS)


def library(bootstrap: str) -> Library:
    """Return the library with the address of its broker."""
    return Library(
        "confluent-kafka",
        partial(ConfluentProducer, bootstrap),
        partial(ConfluentReader, bootstrap),
        partial(ConfluentMember, bootstrap),
        partial(make_topic, bootstrap),
        protocols=("classic", "consumer"),
        plain_repeats=False,
        records_per_second=200,
    )
