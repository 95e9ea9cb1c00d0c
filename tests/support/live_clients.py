"""Clients that run while a broker changes: an idempotent producer, a transactional one, and a member of a group."""

import threading

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.support.deadline import deadline_s


class Sending(threading.Thread):
    """Sends numbers to one partition until it is stopped; records confirmed ones."""

    def __init__(self, bootstrap: str, topic: str, partition: int, **settings: object) -> None:
        super().__init__(daemon=True)
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, **named})
        self._topic, self._partition = topic, partition
        self.stop = threading.Event()
        self.confirmed: list[int] = []
        self.errors: list[str] = []


class Producing(Sending):
    """Sends with an idempotent producer."""

    def __init__(self, bootstrap: str, topic: str, partition: int) -> None:
        super().__init__(bootstrap, topic, partition, enable_idempotence=True, linger_ms=2)

    def run(self) -> None:
        number = 0
        while not self.stop.is_set():
            self._producer.produce(self._topic, str(number), partition=self._partition, on_delivery=self._delivered)
            number += 1
            self._producer.poll(0.001)
        self._producer.flush(deadline_s(60))

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            self.errors.append(str(error))
        else:
            self.confirmed.append(int(message.value()))


class Transacting(Sending):
    """Sends in transactions of three; aborts every third."""

    def __init__(self, bootstrap: str, topic: str, partition: int) -> None:
        super().__init__(bootstrap, topic, partition, transactional_id=f"{topic}-{partition}")

    def run(self) -> None:
        number = 0
        try:
            self._producer.init_transactions(deadline_s(60))
            while not self.stop.is_set():
                self._producer.begin_transaction()
                numbers = range(number, number + 3)
                for each in numbers:
                    self._producer.produce(self._topic, str(each), partition=self._partition)
                number += 3
                if number % 9:
                    self._producer.commit_transaction(deadline_s(60))
                    self.confirmed += numbers
                else:
                    self._producer.abort_transaction(deadline_s(60))
        except KafkaException as error:
            self.errors.append(str(error))


class Reading(threading.Thread):
    """Reads as a member of a group until it has the expected number of records of each partition, and commits."""

    def __init__(self, bootstrap: str, topic: str, protocol: str, partitions: int) -> None:
        super().__init__(daemon=True)
        settings = {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest", "log_level": 0}
        self._consumer = Consumer({**settings, "group.id": f"{topic}-{protocol}", "group.protocol": protocol})
        self._consumer.subscribe([topic])
        self.seen: dict[int, dict[int, int]] = {partition: {} for partition in range(partitions)}
        self.wanted: dict[int, int] = {}
        self.errors: list[str] = []
        self.committed: list[TopicPartition] = []

    def run(self) -> None:
        while not self.wanted or any(len(self.seen[each]) < count for each, count in self.wanted.items()):
            for message in self._consumer.consume(500, timeout=0.2):
                if message.error() is None:
                    self.seen[message.partition()][message.offset()] = int(message.value())
                elif message.error().fatal():
                    self.errors.append(str(message.error()))
                    return
        try:
            self.committed = self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            self.errors.append(str(error))
        self._consumer.close()

    def values(self, partition: int) -> list[int]:
        """Return the records read from a partition, in order of offsets."""
        seen = self.seen[partition]
        return [seen[offset] for offset in sorted(seen)]
