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
        translated(self._producer.begin_transaction)

    def send_offsets(self, offsets: Mapping[int, int], member: ConfluentConsumer) -> None:
        metadata = member.library.consumer_group_metadata()
        translated(self._producer.send_offsets_to_transaction, member.places(offsets), metadata, WAIT_SECONDS)

    def commit(self) -> None:
        translated(self._producer.commit_transaction, WAIT_SECONDS)

    def abort(self) -> None:
        translated(self._producer.abort_transaction, WAIT_SECONDS)

    def close(self) -> None:
        """Drop records in flight."""
        self._producer.purge()


class ConfluentConsumer:
    """A consumer of one topic: a reader of partitions, or a member of a group of either protocol."""

    def __init__(self, bootstrap: str, topic: str, settings: Mapping[str, object]) -> None:
        self._topic = topic
        common = {"bootstrap.servers": bootstrap, "enable.auto.commit": False}
        self.library = Consumer({**common, **settings}, logger=SILENT)

    def poll(self, seconds: float = POLL_SECONDS) -> list[Record]:
        return polled(self.library, seconds)

    def assignment(self) -> set[int]:
        return {place.partition for place in translated(self.library.assignment)}

    def ends(self) -> dict[int, int]:
        return {
            place.partition: translated(self.library.get_watermark_offsets, place, WAIT_SECONDS)[1]
            for place in translated(self.library.assignment)
        }

    def positions(self) -> dict[int, int]:
        places = translated(self.library.position, translated(self.library.assignment))
        return {place.partition: max(0, place.offset) for place in places}

    def places(self, offsets: Mapping[int, int]) -> list[TopicPartition]:
        """Return offsets as the library has them."""
        return [TopicPartition(self._topic, partition, offset) for partition, offset in offsets.items()]

    def commit(self, offsets: Mapping[int, int]) -> None:
        done = translated(self.library.commit, offsets=self.places(offsets), asynchronous=False)
        for place in done:
            if place.error is not None:
                raise ClientError(KafkaException(place.error), Remedy.RETRY)

    def close(self) -> None:
        """Close it, and leave the group."""
        self.library.close()


def reader(bootstrap: str, topic: str, isolation: Isolation, offsets: Mapping[int, int]) -> ConfluentConsumer:
    """Return a consumer with all partitions assigned."""
    consumer = ConfluentConsumer(
        bootstrap,
        topic,
        {
            "client.id": f"{topic}-reader",
            "group.id": f"{topic}-none",
            "isolation.level": isolation.value,
            "auto.offset.reset": "error",
        },
    )
    consumer.library.assign(consumer.places(offsets))
    return consumer


def member(bootstrap: str, topic: str, membership: Membership, assigned: Assigned | None) -> ConfluentConsumer:
    settings: dict[str, object] = {
        "client.id": membership.group,
        "group.id": membership.group,
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
    consumer = ConfluentConsumer(bootstrap, topic, settings)
    if assigned is None:
        consumer.library.subscribe([topic])
    else:
        consumer.library.subscribe([topic], on_assign=lambda _, places: assigned([each.partition for each in places]))
    return consumer


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
    admin = AdminClient({"bootstrap.servers": bootstrap})
    translated(admin.create_topics([NewTopic(name, partitions, 1)])[name].result, WAIT_SECONDS)


def library(bootstrap: str) -> Library:
    return Library(
        "confluent-kafka",
        partial(ConfluentProducer, bootstrap),
        partial(reader, bootstrap),
        partial(member, bootstrap),
        partial(make_topic, bootstrap),
        protocols=("classic", "consumer"),
        plain_repeats=False,
        records_per_second=200,
    )
