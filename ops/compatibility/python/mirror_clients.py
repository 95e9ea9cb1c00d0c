"""Clients that move to another cluster: a producer of numbered records, and groups that record their reads."""

import threading
import time

from checks import require
from confluent_kafka import Consumer, Producer, TopicPartition

REQUEST_SECONDS = 20.0
RECORDS_A_SECOND = 100


class Writer:
    """Produces numbers to each partition of a topic, in a thread, until stopped; can continue at another cluster."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._bootstrap, self._topic = bootstrap, topic
        #: Acknowledged numbers, by partition.
        self.written: list[list[int]] = [[] for _ in range(partitions)]
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> "Writer":
        self._ended.clear()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()
        return self

    def go_on(self, bootstrap: str) -> None:
        """Continue at another cluster, or the same."""
        self._bootstrap = bootstrap
        self.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def count(self) -> int:
        return sum(map(len, self.written))

    def _write(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True})

        def acknowledged(error: object, message: object) -> None:
            require(error is None, error)
            self.written[message.partition()].append(int(message.value()))

        numbers = [len(each) for each in self.written]
        while not self._ended.wait(1 / RECORDS_A_SECOND):
            for partition, number in enumerate(numbers):
                producer.produce(self._topic, str(number), partition=partition, on_delivery=acknowledged)
                numbers[partition] = number + 1
            producer.poll(0)
        require(producer.flush(REQUEST_SECONDS) == 0, "not all was acknowledged")


class Reader:
    """One group member that commits what it reads; it can move to another cluster using only the group's offsets."""

    def __init__(self, bootstrap: str, topic: str, group: str, protocol: str) -> None:
        self._bootstrap, self._topic, self.group, self._protocol = bootstrap, topic, group, protocol
        self.read: list[list[int]] = [[], [], []]
        #: Numbers of records read before the move.
        self._before: list[int] = [0, 0, 0]
        self._reset = "earliest"
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._fault: Exception | None = None

    def start(self) -> "Reader":
        self._ended.clear()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def go_on(self, bootstrap: str) -> None:
        """Continue at another cluster, where a missing offset is an error."""
        self._bootstrap, self._reset = bootstrap, "error"
        self._before = [len(each) for each in self.read]
        self.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def count(self) -> int:
        """Return the number of records read. Raises the exception that ended the reading."""
        if self._fault is not None:
            raise self._fault
        return sum(map(len, self.read))

    def count_there(self) -> int:
        return self.count() - sum(self._before)

    def has_read(self, written: list[list[int]]) -> bool:
        self.count()
        return all(
            not sent or (found and found[-1] >= sent[-1]) for found, sent in zip(self.read, written, strict=True)
        )

    def check(self, written: list[list[int]]) -> int:
        """Stop; return how many records were read twice. AssertionError if one was lost or out of order."""
        self.stop()
        twice = 0
        for found, before, sent in zip(self.read, self._before, written, strict=True):
            here, there = found[:before], found[before:]
            require(here == sent[:before], "not in order before it moved")
            require(there and there[0] <= before, f"went on at {there[:1]}, was at {before}: records are lost")
            require(there == sent[there[0] :], "not in order after it moved")
            twice += before - there[0]
        return twice

    def _read(self) -> None:
        settings = {"bootstrap.servers": self._bootstrap, "group.id": self.group, "enable.auto.commit": False}
        settings |= {"auto.offset.reset": self._reset, "group.protocol": self._protocol}
        consumer = Consumer(settings | {"isolation.level": "read_committed"})
        consumer.subscribe([self._topic])
        try:
            while not self._ended.is_set():
                messages = consumer.consume(500, 0.2)
                for message in messages:
                    require(message.error() is None, message.error())
                    self.read[message.partition()].append(int(message.value()))
                if messages:
                    consumer.commit(asynchronous=False)
        except Exception as fault:  # raised to the caller by count()
            self._fault = fault
        finally:
            consumer.close()


def positions(bootstrap: str, topic: str, group: str) -> dict[int, int]:
    """Return the committed offsets of a group by partition; none while they cannot be had."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        found = consumer.committed([TopicPartition(topic, each) for each in range(3)], REQUEST_SECONDS)
    except Exception:  # a coordinator that is not ready yet
        return {}
    finally:
        consumer.close()
    return {each.partition: each.offset for each in found if each.offset >= 0}


def ends(bootstrap: str, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"ends-{time.monotonic_ns()}"})
    found = [consumer.get_watermark_offsets(TopicPartition(topic, each), REQUEST_SECONDS)[1] for each in range(3)]
    consumer.close()
    return found
