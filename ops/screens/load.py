"""Load from two client libraries at once, so that every screen of the status page has something to show.

Runs in threads of the caller: confluent-kafka produces and consumes in a group, aiokafka does the same with another
client id, and one producer uses transactions. `stop` ends all of it.
"""

import asyncio
import threading
import time
from collections.abc import Callable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import AcknowledgeType, Consumer, KafkaException, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, NewTopic

TOPICS = {"orders": 4, "payments": 2, "clickstream": 3, "inventory.changes": 1}

SHARE_GROUP = "shipping"


class PageLoad:
    """Starts with `start`, runs until `stop`; `rate` is records per second and producer."""

    def __init__(self, bootstrap: str, rate: int = 400) -> None:
        self._bootstrap = bootstrap
        self._pause_s = 1 / max(1, rate / 10)
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self.produced = 0
        self.consumed = 0

    def start(self) -> "PageLoad":
        admin = AdminClient({"bootstrap.servers": self._bootstrap, "client.id": "setup"})
        for future in admin.create_topics([NewTopic(name, n, 1) for name, n in TOPICS.items()]).values():
            future.result(10)
        runs: list[Callable[[], None]] = [
            self._produce,
            lambda: self._consume("billing", ["orders", "payments"]),
            lambda: self._consume("billing", ["orders", "payments"]),
            lambda: self._share(SHARE_GROUP, ["orders", "payments"]),
            lambda: asyncio.run(self._produce_aiokafka()),
            lambda: asyncio.run(self._consume_aiokafka()),
        ]
        self._threads = [threading.Thread(target=run, daemon=True) for run in runs]
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(20)

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "client.id": "checkout", "linger.ms": 2})
        number = 0
        while not self._stopped.wait(self._pause_s):
            for _ in range(10):
                number += 1
                producer.produce("orders", f"order {number}".encode() * 8, str(number % 97).encode())
                if number % 4 == 0:
                    producer.produce("payments", f"payment {number}".encode() * 4, str(number % 31).encode())
            producer.poll(0)
        producer.flush(5)
        self.produced += number

    def _consume(self, group: str, topics: list[str]) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "client.id": f"{group}-worker",
                "group.id": group,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 500,
            }
        )
        consumer.subscribe(topics)
        try:
            while not self._stopped.is_set():
                for message in consumer.consume(200, 0.2):
                    self.consumed += message.error() is None
        except KafkaException:
            if not self._stopped.is_set():
                raise
        finally:
            consumer.close()

    def _share(self, group: str, topics: list[str]) -> None:
        """Accept most records, and release every tenth for another delivery."""
        consumer = ShareConsumer(
            {
                "bootstrap.servers": self._bootstrap,
                "client.id": f"{group}-worker",
                "group.id": group,
                "share.acknowledgement.mode": "explicit",
            }
        )
        consumer.subscribe(topics)
        try:
            while not self._stopped.is_set():
                for number, message in enumerate(consumer.poll(0.2)):
                    if message.error() is None:
                        consumer.acknowledge(
                            message, AcknowledgeType.ACCEPT if number % 10 else AcknowledgeType.RELEASE
                        )
        except KafkaException:
            if not self._stopped.is_set():
                raise
        finally:
            consumer.close()

    async def _produce_aiokafka(self) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=self._bootstrap, client_id="web-frontend")
        await producer.start()
        number = 0
        try:
            while not self._stopped.is_set():
                number += 1
                await producer.send("clickstream", f"click {number}".encode() * 20)
                if number % 50 == 0:
                    await producer.send("inventory.changes", f"change {number}".encode() * 100)
                await asyncio.sleep(self._pause_s / 5)
        finally:
            await producer.stop()
        self.produced += number

    async def _consume_aiokafka(self) -> None:
        consumer = AIOKafkaConsumer(
            "clickstream", "inventory.changes", bootstrap_servers=self._bootstrap, client_id="analytics",
            group_id="analytics", auto_offset_reset="earliest",
        )  # fmt: skip
        await consumer.start()
        try:
            while not self._stopped.is_set():
                batches = await consumer.getmany(timeout_ms=200)
                self.consumed += sum(len(batch) for batch in batches.values())
        finally:
            await consumer.stop()


def warm_up(load: PageLoad, deadline_s: float = 20) -> None:
    end = time.monotonic() + deadline_s
    while load.consumed == 0 and time.monotonic() < end:
        time.sleep(0.05)
    if not load.consumed:
        raise TimeoutError("nothing was consumed")
