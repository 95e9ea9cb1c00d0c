"""A read_committed consumer follows live while transactions end, segments are compacted and records are deleted.

Its fetches wait for much longer than the test: every one of them must be woken, by the handler that moves a last stable
offset. Aborted records are never seen; committed ones are never lost or late.
"""

import random
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s

BROKER_SETTINGS = {
    "num.io.threads": 3,
    "log.cleaner.backoff.ms": 20,
    "log.retention.check.interval.ms": 100,
    "process.restart.limit": 1000,
}
CONFIGS = {
    "compacted": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": "0"},
    "deleted": {"retention.bytes": "20000"},
}
PARTITIONS = 3
RUN_S = 5.0
#: A fetch that is not woken gets its response only after this.
FETCH_WAIT_MS = 120_000


class Follower:
    """The consumer, and every value that it has seen."""

    def __init__(self, broker: BrokerProcess, topics: list[str]) -> None:
        self.seen: set[bytes] = set()
        self.positions: dict[tuple[str, int], int] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "follower",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": FETCH_WAIT_MS,
                "socket.timeout.ms": 2 * FETCH_WAIT_MS,
                "check.crcs": True,
            }
        )
        self._consumer.assign([TopicPartition(topic, p, 0) for topic in topics for p in range(PARTITIONS)])

    def read_until(self, wanted: set[bytes]) -> None:
        """Read until these have been seen."""
        deadline = time.monotonic() + deadline_s()
        while not wanted <= self.seen:
            assert time.monotonic() < deadline, f"missing: {sorted(wanted - self.seen)}"
            for message in self._consumer.consume(100, 0.05):
                assert message.error() is None, message.error()
                assert message.value() not in self.seen
                self.seen.add(message.value())
                self.positions[message.topic(), message.partition()] = message.offset() + 1

    def close(self) -> None:
        self._consumer.close()


class Writers:
    """A plain and two transactional producers; every record has its own key: compaction removes aborted ones."""

    def __init__(self, broker: BrokerProcess, topics: list[str], chance: random.Random) -> None:
        settings = {"bootstrap.servers": broker.bootstrap, "linger.ms": 0}
        self.topics = topics
        self.chance = chance
        self.aborted: set[bytes] = set()
        self._number = 0
        self._plain = Producer(settings)
        self._transactional = [
            Producer({**settings, "transactional.id": f"{topics[0]}-{number}"}) for number in range(2)
        ]
        for producer in self._transactional:
            producer.init_transactions(deadline_s())
        #: The records of each transactional producer's open transaction; None: none is open.
        self._open: list[set[bytes] | None] = [None, None]

    def step(self) -> set[bytes]:
        """Take one step; return the values that are visible from now on, except those after an open transaction."""
        which = self.chance.randrange(3)
        if which == 2:
            return self._write(self._plain)
        producer, values = self._transactional[which], self._open[which]
        if values is None:
            producer.begin_transaction()
            self._open[which] = self._write(producer)
        elif self.chance.random() < 0.5:
            values |= self._write(producer)
        else:
            return self._end(which, commit=self.chance.random() < 0.6)
        return set()

    def end_all(self) -> set[bytes]:
        """End all open transactions."""
        values: set[bytes] = set()
        for which, opened in enumerate(self._open):
            if opened is not None:
                values |= self._end(which, commit=True)
        return values

    @property
    def has_open(self) -> bool:
        """Whether the last stable offset may lie below the end."""
        return any(values is not None for values in self._open)

    def _end(self, which: int, *, commit: bool) -> set[bytes]:
        producer, values = self._transactional[which], self._open[which]
        assert values is not None
        self._open[which] = None
        if commit:
            producer.commit_transaction(deadline_s())
            return values
        producer.abort_transaction(deadline_s())
        self.aborted |= values
        return set()

    def _write(self, producer: Producer) -> set[bytes]:
        values = set()
        for _ in range(self.chance.randrange(1, 8)):
            self._number += 1
            value = b"%d" % self._number
            topic = self.chance.choice(self.topics)
            producer.produce(topic, value.rjust(100), key=value, partition=self.chance.randrange(PARTITIONS))
            values.add(value.rjust(100))
        assert producer.flush(deadline_s()) == 0
        return values


def kill_one(broker: BrokerProcess, chance: random.Random) -> None:
    """SIGKILL the cleaner or a handler and return once another runs in its place."""
    role = chance.choice(["cleaner", "handler"])
    broker.kill(role, chance.choice(broker.processes(role))["index"])


def test_a_follower_sees_committed_records_at_once(broker: BrokerProcess, topic: str, chance: random.Random) -> None:
    """users.md row 11."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [f"{topic}-{kind}" for kind in CONFIGS]
    created = [
        NewTopic(name, PARTITIONS, config={"internal.segment.bytes": "2000", "file.delete.delay.ms": "1", **configs})
        for name, configs in zip(topics, CONFIGS.values(), strict=True)
    ]
    for done in admin.create_topics(created).values():
        done.result(deadline_s())
    writers, follower = Writers(broker, topics, chance), Follower(broker, topics)
    committed: set[bytes] = set()
    deadline = time.monotonic() + RUN_S
    try:
        while time.monotonic() < deadline:
            committed |= writers.step()
            if not writers.has_open or chance.random() < 0.05:
                committed |= writers.end_all()
                follower.read_until(committed)
            if chance.random() < 0.03:
                before = [
                    TopicPartition(name, partition, offset)
                    for (name, partition), offset in follower.positions.items()
                    if name == topics[1]
                ]
                for done in (admin.delete_records(before) if before else {}).values():
                    done.result(deadline_s())
            if chance.random() < 0.02:
                kill_one(broker, chance)
        committed |= writers.end_all()
        follower.read_until(committed)
        assert follower.seen == committed
        assert not follower.seen & writers.aborted
    finally:
        follower.close()
