"""One client under a limit: performs one kind of task and prints the application's observations as JSON.

These are the amount done, errors, the longest throttle time in ms, and whether a connection was closed by the broker.
Arguments: the library (confluent or kafka-python), bootstrap address, client id, topic, task, and its amount.
"""

import faulthandler
import json
import logging
import sys
import time
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.admin
import kafka.errors

LARGE, SMALL = bytes(10_000), bytes(10)
FETCH_BYTES = 30_000
BATCH_BYTES = 20_000
LIMIT_S = 240
PAUSE_S = 0.1


class Confluent:
    """librdkafka."""

    def __init__(self, bootstrap: str, client_id: str, topic: str, count: int):
        self.topic, self.count = topic, count
        self.done, self.throttle_ms, self.closed = 0, 0.0, False
        self.errors: list[str] = []
        self.settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "throttle_cb": self._throttled,
            "error_cb": self._told,
            "reconnect.backoff.max.ms": 500,
        }

    def _throttled(self, event: Any) -> None:
        self.throttle_ms = max(self.throttle_ms, event.throttle_time * 1000)

    def _told(self, error: confluent_kafka.KafkaError) -> None:
        # Informational only: the running operation continues.
        if error.code() in {error._TRANSPORT, error._ALL_BROKERS_DOWN}:
            self.closed = True
        else:
            self.errors.append(str(error))

    def _delivered(self, error: Any, _: Any) -> None:
        if error:
            self.errors.append(str(error))
        else:
            self.done += 1

    def _producer(self) -> confluent_kafka.Producer:
        # Requests in flight when a throttle time arrives are still answered, so they must not be the whole load.
        return confluent_kafka.Producer({**self.settings, "batch.size": BATCH_BYTES, "max.in.flight": 2})

    def produce(self) -> None:
        """Send all at once."""
        producer = self._producer()
        for _ in range(self.count):
            producer.produce(self.topic, LARGE, partition=0, on_delivery=self._delivered)
        producer.flush(LIMIT_S)
        producer.poll(1)

    def requests(self) -> None:
        """Send one after the other."""
        producer = self._producer()
        for _ in range(self.count):
            producer.produce(self.topic, SMALL, partition=0, on_delivery=self._delivered)
            producer.flush(LIMIT_S)
        producer.poll(1)

    def connect(self) -> None:
        """Send each by a client of its own."""
        for _ in range(self.count):
            producer = self._producer()
            producer.produce(self.topic, SMALL, partition=0, on_delivery=self._delivered)
            producer.flush(LIMIT_S)
            producer.poll(0.2)
            del producer

    def consume(self) -> None:
        """Read from the beginning."""
        fetch = {"group.id": self.topic, "fetch.message.max.bytes": FETCH_BYTES, "fetch.max.bytes": FETCH_BYTES}
        consumer = confluent_kafka.Consumer({**self.settings, **fetch, "message.max.bytes": FETCH_BYTES})
        consumer.assign([confluent_kafka.TopicPartition(self.topic, 0, 0)])
        while self.done < self.count:
            message = consumer.poll(1)
            if message is not None and message.error():
                raise confluent_kafka.KafkaException(message.error())
            if message is not None:
                note_read(self, [message.offset()])
        consumer.poll(0)
        consumer.close()

    def topics(self) -> None:
        """Use the quota up by one topic, and create another."""
        admin = confluent_kafka.admin.AdminClient(self.settings)
        for number, partitions in enumerate((self.count, 1)):
            name = f"{self.topic}-{number}"
            admin.create_topics([confluent_kafka.admin.NewTopic(name, partitions, 1)])[name].result(LIMIT_S)
            self.done += 1
        admin.poll(1)


class KafkaPython:
    """kafka-python.

    It hangs for good once the maximum in flight is reached while a throttle time lasts, so that maximum is large.
    """

    def __init__(self, bootstrap: str, client_id: str, topic: str, count: int):
        self.topic, self.count = topic, count
        self.done, self.throttle_ms, self.closed = 0, 0.0, False
        self.errors: list[str] = []
        logging.getLogger("kafka.net.connection").addFilter(self._sees)
        self.settings: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
            "client_id": client_id,
            "reconnect_backoff_max_ms": 500,
            "max_in_flight_requests_per_connection": 100,
        }

    def _sees(self, line: logging.LogRecord) -> bool:
        # No metric distinguishes a lost connection from one closed by the client.
        self.closed |= line.getMessage().find("Connection lost") >= 0
        return True

    def _see(self, client: Any) -> None:
        for group in client.metrics().values():
            for name, value in group.items():
                if name.endswith("throttle-time-max") and value > self.throttle_ms:
                    self.throttle_ms = value

    def _producer(self) -> kafka.KafkaProducer:
        return kafka.KafkaProducer(**self.settings, batch_size=BATCH_BYTES, acks=1, enable_idempotence=False)

    def produce(self) -> None:
        """Send all at once."""
        producer = self._producer()
        sent = [producer.send(self.topic, LARGE, partition=0) for _ in range(self.count)]
        for future in sent:
            future.get(LIMIT_S)
            self.done += 1
        self._see(producer)
        producer.close()

    def requests(self) -> None:
        """Send one after the other."""
        producer = self._producer()
        self._send(producer, self.count)
        producer.close()

    def connect(self) -> None:
        """Send each by a client of its own."""
        for _ in range(self.count):
            producer = self._producer()
            self._send(producer, 1)
            producer.close()

    def _send(self, producer: kafka.KafkaProducer, count: int) -> None:
        for _ in range(count):
            producer.send(self.topic, SMALL, partition=0).get(LIMIT_S)
            self.done += 1
        self._see(producer)

    def consume(self) -> None:
        """Read from the beginning."""
        fetch = {"max_partition_fetch_bytes": FETCH_BYTES, "fetch_max_bytes": FETCH_BYTES}
        consumer = kafka.KafkaConsumer(**self.settings, **fetch)
        partition = kafka.TopicPartition(self.topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        while self.done < self.count:
            note_read(self, [record.offset for records in consumer.poll(1000).values() for record in records])
        self._see(consumer)
        consumer.close()

    def topics(self) -> None:
        """Use up the quota with one topic, and create another as soon as that is allowed."""
        admin = kafka.admin.KafkaAdminClient(**self.settings)
        for number, partitions in enumerate((self.count, 1)):
            wanted = {f"{self.topic}-{number}": {"num_partitions": partitions, "replication_factor": 1}}
            while self.done <= number:
                try:
                    admin.create_topics(wanted)
                    self.done += 1
                except kafka.errors.ThrottlingQuotaExceededError:
                    self.errors.append("THROTTLING_QUOTA_EXCEEDED")
                except kafka.errors.NodeNotReadyError:
                    # The library's own: it knows the throttle time, and does not wait for its end.
                    time.sleep(PAUSE_S)
        admin.close()


def note_read(client: Confluent | KafkaPython, offsets: list[int]) -> None:
    """Count records that have been read: each once, in order."""
    if offsets != list(range(client.done, client.done + len(offsets))):
        client.errors.append(f"after {client.done} records come those with the offsets {offsets}")
    client.done += len(offsets)


LIBRARIES: dict[str, type[Confluent | KafkaPython]] = {"confluent": Confluent, "kafka-python": KafkaPython}


def main() -> None:
    """Run the task and print the observations."""
    library, bootstrap, client_id, topic, work, count = sys.argv[1:]
    # A hanging client dumps its stack, and the library's log is on stderr.
    faulthandler.dump_traceback_later(LIMIT_S / 2)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    client = LIBRARIES[library](bootstrap, client_id, topic, int(count))
    try:
        getattr(client, work)()
    except Exception as failure:  # the exception that the application sees
        client.errors.append(repr(failure))
    print(json.dumps({each: getattr(client, each) for each in ("done", "errors", "throttle_ms", "closed")}))


main()
