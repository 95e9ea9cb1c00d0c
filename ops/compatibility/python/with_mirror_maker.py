"""MirrorMaker 2 copies a broker to an Apache Kafka, using the output of `rotunda mirror-config`, while clients run.

Starts an Apache Kafka and MirrorMaker of its own. Records have numbers, so that lost, repeated and reordered records
are found. Runs in a process of its own; needs the repository on its path.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from checks import require, run, unique
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from mirror_clients import Reader, Writer, ends, positions

from ops.benchmarks.kafka import kafka
from ops.broker import output_of, rotunda
from ops.compatibility.mirror_maker import MirrorMaker

DEADLINE_SECONDS = 110
#: `rotunda mirror-config` sets an interval of 5 s for copying group offsets, and for emitting offset pairs.
SETTLED_SECONDS = 16
PARTITIONS = 3
#: Set to yes: MirrorMaker carries Kafka over to the broker.
BACK = "ROTUNDA_MIRROR_BACK"


def until(what: str, condition: Callable[[], object]) -> None:
    """Wait for the condition. AssertionError naming it on timeout."""
    end = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        require(time.monotonic() < end, f"not within {DEADLINE_SECONDS} s: {what}")
        time.sleep(0.2)


@contextmanager
def mirrored(ours: str, *, is_back: bool) -> Iterator[tuple[str, str, MirrorMaker]]:
    """Yield where MirrorMaker reads and where it writes, and MirrorMaker; one of them is an Apache Kafka."""
    with tempfile.TemporaryDirectory(prefix="rotunda-mirror-") as name, kafka(Path(name) / "kafka") as other:
        theirs = f"127.0.0.1:{other.port}"
        source, target = (theirs, ours) if is_back else (ours, theirs)
        maker = MirrorMaker(Path(name), "--bootstrap", source, "--to", target)
        maker.start()
        try:
            yield source, target, maker
        finally:
            maker.kill()


def new_topic(bootstrap: str, prefix: str, partitions: int = PARTITIONS, **settings: str) -> str:
    name = unique(prefix)
    config = {key.replace("_", "."): value for key, value in settings.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(DEADLINE_SECONDS)
    return name


def topics_and_settings(target: str, source: str) -> None:
    """Carry over a topic's partitions and settings, and partitions that are added later."""
    wanted = {"cleanup.policy": "compact", "max.message.bytes": "2000000"}
    topic = new_topic(source, "settings", cleanup_policy="compact", max_message_bytes="2000000")
    there = AdminClient({"bootstrap.servers": target})

    def partitions() -> int:
        return len(there.list_topics(topic, DEADLINE_SECONDS).topics[topic].partitions)

    until("the topic", lambda: topic in there.list_topics(timeout=DEADLINE_SECONDS).topics)
    until("its settings", lambda: wanted.items() <= settings_of(topic, target).items())
    require(partitions() == PARTITIONS, "partitions")
    output_of(rotunda("topic", "alter", topic, "--partitions", str(PARTITIONS + 1), "--bootstrap", source))
    until("a new partition", lambda: partitions() == PARTITIONS + 1)


def settings_of(topic: str, bootstrap: str) -> dict[str, str]:
    described = output_of(rotunda("topic", "describe", topic, "--json", "--bootstrap", bootstrap))
    return dict(json.loads(described)["configs"])


def records(target: str, source: str) -> str:
    """Compare keys, values, headers, timestamps and order; no record of an aborted transaction is copied."""
    topic = new_topic(source, "records")
    producer = Producer({"bootstrap.servers": source, "transactional.id": topic})
    producer.init_transactions(DEADLINE_SECONDS)
    sent: list[list[tuple[object, ...]]] = [[] for _ in range(PARTITIONS)]
    now_ms = time.time_ns() // 1_000_000
    for turn in range(20):
        producer.begin_transaction()
        for number in range(30):
            key, value = f"k{number}".encode(), None if number == 7 else f"{turn}.{number}".encode()
            record = (key, value, [("turn", str(turn).encode()), ("none", None)], now_ms + number)
            producer.produce(topic, value, key, number % PARTITIONS, headers=record[2], timestamp=record[3])
            if turn % 3:
                sent[number % PARTITIONS].append(record)
        producer.commit_transaction() if turn % 3 else producer.abort_transaction()
    found: list[list[tuple[object, ...]]] = [[] for _ in range(PARTITIONS)]
    there = AdminClient({"bootstrap.servers": target})
    until("the topic", lambda: topic in there.list_topics(timeout=DEADLINE_SECONDS).topics)
    settings = {"bootstrap.servers": target, "group.id": topic, "enable.auto.commit": False}
    consumer = Consumer(settings | {"isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])

    def read() -> bool:
        for message in consumer.consume(1000, 0.5):
            require(message.error() is None, message.error())
            record = (message.key(), message.value(), message.headers(), message.timestamp()[1])
            found[message.partition()].append(record)
        return sum(map(len, found)) >= sum(map(len, sent))

    until("all records", read)
    consumer.close()
    require(found == sent, "records differ")
    return f"{sum(map(len, sent))} records"


def groups_go_on(target: str, source: str) -> str:
    """Move consumers of both protocols one after the other, then the producer: each record is read, in order.

    Records read since the last copied group offset are read again: that is MirrorMaker's rule.
    """
    topic = new_topic(source, "moving")
    writer = Writer(source, topic, PARTITIONS).start()
    readers = {
        protocol: Reader(source, topic, unique(protocol), protocol).start() for protocol in ("classic", "consumer")
    }
    until("both read", lambda: all(each.count() > 300 for each in readers.values()))
    for reader in readers.values():
        until("its positions are there", lambda each=reader: len(positions(target, topic, each.group)) == PARTITIONS)
        reader.stop()
        time.sleep(SETTLED_SECONDS)
        reader.go_on(target)
    until("both read there", lambda: all(each.count_there() > 300 for each in readers.values()))
    writer.stop()
    until("all is carried over", lambda: all(each.has_read(writer.written) for each in readers.values()))
    writer.go_on(target)
    before = writer.count()
    until("what is produced there is read", lambda: writer.count() > before + 200)
    writer.stop()
    until("the rest", lambda: all(each.has_read(writer.written) for each in readers.values()))
    twice = [each.check(writer.written) for each in readers.values()]
    total = sum(map(len, writer.written))
    return f"of {total} records none lost, {twice[0]} and {twice[1]} read twice by a classic and a KIP-848 group"


def nothing_twice(target: str, source: str) -> str:
    """Move a group that has read to the end: it continues with the next record."""
    topic = new_topic(source, "ended")
    writer = Writer(source, topic, PARTITIONS).start()
    until("records", lambda: writer.count() > 300)
    writer.stop()
    reader = Reader(source, topic, unique("ended"), "classic").start()
    until("all is read", lambda: reader.has_read(writer.written))
    reader.stop()
    numbers = [len(each) for each in writer.written]

    def settled() -> bool:
        found = positions(target, topic, reader.group)
        # After the last record there may be the marker of MirrorMaker's transaction.
        return len(found) == PARTITIONS and all(found[each] >= numbers[each] for each in range(PARTITIONS))

    until("its positions are at the end", settled)
    reader.go_on(target)
    writer.go_on(source)
    before = writer.count()
    until("more", lambda: writer.count() > before + 100)
    writer.stop()
    until("more is read there", lambda: reader.has_read(writer.written))
    require(reader.check(writer.written) == 0, "records were read twice")
    return f"{reader.count_there()} records read there, none twice"


def killed(target: str, source: str, maker: MirrorMaker) -> str:
    """Kill MirrorMaker in the middle and start it again: each record is copied once, in order."""
    topic = new_topic(source, "killed")
    writer = Writer(source, topic, PARTITIONS).start()
    there = AdminClient({"bootstrap.servers": target})
    until("the topic", lambda: topic in there.list_topics(timeout=DEADLINE_SECONDS).topics)
    until("some records", lambda: sum(ends(target, topic)) > 100)
    maker.kill()
    maker.start()
    writer.stop()
    reader = Reader(target, topic, unique("killed"), "classic").start()
    until("all records", lambda: reader.has_read(writer.written))
    reader.stop()
    require(reader.read == writer.written, "records differ")
    return f"{writer.count()} records"


def main() -> None:
    with mirrored(sys.argv[1], is_back=os.environ.get(BACK) == "yes") as (source, target, maker):
        features: dict[str, Callable[[str, str], str | None]] = {
            "topics, partitions and settings": topics_and_settings,
            "records, none of an aborted transaction": records,
            "groups and producers move while they run": groups_go_on,
            "a group at the end reads nothing twice": nothing_twice,
            "MirrorMaker killed: each record once": partial(killed, maker=maker),
        }
        run({name: lambda _, feature=feature: feature(target, source) for name, feature in features.items()})


if __name__ == "__main__":
    main()
