"""librdkafka under a limit: performs one kind of task and prints the application's observations as JSON.

These are the amount done, errors, the longest throttle time in ms, and whether a connection was closed by the broker.
Arguments: bootstrap address, client id, topic, task, and its amount.
"""

import faulthandler
import json
import sys
from typing import Any

import confluent_kafka
import confluent_kafka.admin

LARGE, SMALL = bytes(10_000), bytes(10)
FETCH_BYTES = 30_000
BATCH_BYTES = 20_000
LIMIT_S = 240


class Limited:
    """The client of one task, and what its application has seen."""

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
        producer = self._producer()
        for _ in range(self.count):
            producer.produce(self.topic, LARGE, partition=0, on_delivery=self._delivered)
        producer.flush(LIMIT_S)
        producer.poll(1)

    def requests(self) -> None:
        producer = self._producer()
        for _ in range(self.count):
            producer.produce(self.topic, SMALL, partition=0, on_delivery=self._delivered)
            producer.flush(LIMIT_S)
        producer.poll(1)

    def connect(self) -> None:
        for _ in range(self.count):
            producer = self._producer()
            producer.produce(self.topic, SMALL, partition=0, on_delivery=self._delivered)
            producer.flush(LIMIT_S)
            producer.poll(0.2)
            del producer

    def consume(self) -> None:
        fetch = {"group.id": self.topic, "fetch.message.max.bytes": FETCH_BYTES, "fetch.max.bytes": FETCH_BYTES}
        consumer = confluent_kafka.Consumer({**self.settings, **fetch, "message.max.bytes": FETCH_BYTES})
        consumer.assign([confluent_kafka.TopicPartition(self.topic, 0, 0)])
        while self.done < self.count:
            message = consumer.poll(1)
            if message is not None and message.error():
                raise confluent_kafka.KafkaException(message.error())
            if message is not None:
                if message.offset() != self.done:
                    self.errors.append(f"after {self.done} records comes the one at offset {message.offset()}")
                self.done += 1
        consumer.poll(0)
        consumer.close()

    def topics(self) -> None:
        admin = confluent_kafka.admin.AdminClient(self.settings)
        for number, partitions in enumerate((self.count, 1)):
            name = f"{self.topic}-{number}"
            admin.create_topics([confluent_kafka.admin.NewTopic(name, partitions, 1)])[name].result(LIMIT_S)
            self.done += 1
        admin.poll(1)


def main() -> None:
    bootstrap, client_id, topic, work, count = sys.argv[1:]
    # A hanging client dumps its stack.
    faulthandler.dump_traceback_later(LIMIT_S / 2)
    client = Limited(bootstrap, client_id, topic, int(count))
    try:
        getattr(client, work)()
    except Exception as failure:  # the exception that the application sees
        client.errors.append(repr(failure))
    print(json.dumps({each: getattr(client, each) for each in ("done", "errors", "throttle_ms", "closed")}))


main()
