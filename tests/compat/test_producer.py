"""Our producer on both brokers: every codec at once, read back by the Java consumer, while processes are killed.

Of ours each process dies in turn, while records are sent and while Java reads them; Apache Kafka dies while they
are sent. The next test with these brokers is `test_producer_transactions`.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ops.compatibility import preparation
from rotunda.broker.client import Producer
from rotunda.broker.client.producer.futures import RecordFuture
from rotunda.broker.records.record_batch import CODECS
from tests.compat.dying_brokers import STRIKES, DyingBroker
from tests.support.deadline import deadline_s

pytestmark = [pytest.mark.slow, pytest.mark.needs("kafka")]

RECORDS = 304
PARTITIONS = 3
#: Java has that long until the next process dies.
BETWEEN_S = 0.5
LINE = re.compile(r"CreateTime:(\d+)\tPartition:(\d+)\tOffset:(\d+)\t(.*)\t(.*)\t(.*)")

#: The Java consumer's output for a record: time, partition, offset, headers, key, value.
Printed = tuple[int, int, int, str, str, str]
Sent = dict[str, list[tuple[RecordFuture, tuple[str, str, str]]]]


def java_reads(arguments: Sequence[str], directory: Path, meanwhile: Callable[[], None]) -> list[str]:
    """Return the lines that Java's console consumer prints, while something happens again and again for a while."""
    classes = f"{preparation.JARS}/*{os.pathsep}{preparation.KAFKA_JARS}/*"
    command = ["java", "-cp", classes, "org.apache.kafka.tools.consumer.ConsoleConsumer", "--from-beginning"]
    command += ["--timeout-ms", "60000", "--command-property", "check.crcs=true", *arguments]
    with (directory / "read").open("w+") as output, (directory / "said").open("w+") as errors:
        with subprocess.Popen(command, stdout=output, stderr=errors, cwd=directory) as reading:
            for _ in range(STRIKES):
                with suppress(subprocess.TimeoutExpired):
                    reading.wait(BETWEEN_S)
                    break
                meanwhile()
        for file in (output, errors):
            file.seek(0)
        print(errors.read()[-2000:])
        return output.read().splitlines()


def send_all(dying: DyingBroker) -> Sent:
    """Send with all codecs at the same time; return futures, and headers, key and value as Java prints them."""
    sent: Sent = defaultdict(list)
    with ExitStack() as stack:
        producers = {}
        for codec in CODECS:
            settings = {"bootstrap.servers": dying.address, "compression.type": codec, "batch.size": 2048}
            producers[codec] = stack.enter_context(Producer(settings))
        for number in range(RECORDS):
            for codec, producer in producers.items():
                # One of both shows the codec.
                key = f"{codec} key {number % 7}" if number % 3 else None
                value = f"{codec} value {number} " + "é" * (number % 40) if number % 60 != 1 else None
                headers = {"trace": b"1", "second": b""} if number % 11 == 0 else None
                future = producer.send(f"produced-{codec}", value and value.encode(), key and key.encode(), headers)
                printed = ("trace:1,second:" if headers else "NO_HEADERS", str(key or "null"), str(value or "null"))
                sent[codec].append((future, printed))
            if number % (RECORDS // STRIKES) == 0:
                dying.strike()
    return sent


def test_every_record_is_read_by_the_java_consumer_as_it_was_sent(dying: DyingBroker, tmp_path: Path) -> None:
    """`G24`: once, in order, and at its future's offset; with every codec, under SIGKILL of every process."""
    admin = AdminClient({"bootstrap.servers": dying.address})
    topics = [NewTopic(f"produced-{codec}", PARTITIONS, 1) for codec in CODECS]
    for future in admin.create_topics(topics, request_timeout=120).values():
        future.result(deadline_s(60))
    sent = send_all(dying)
    shown = [f"print.{what}=true" for what in ("timestamp", "partition", "offset", "headers", "key")]
    arguments = ["--bootstrap-server", dying.address, "--include", "produced-.*"]
    arguments += ["--max-messages", str(RECORDS * len(CODECS))]
    arguments += [word for each in shown for word in ("--formatter-property", each)]
    found: dict[str, list[Printed]] = defaultdict(list)
    for line in java_reads(arguments, tmp_path, dying.strike):
        if matched := LINE.fullmatch(line):
            time, partition, offset, headers, key, value = matched.groups()
            codec = (value if key == "null" else key).split()[0]
            found[codec].append((int(time), int(partition), int(offset), headers, key, value))
    for codec, records in sent.items():
        places = [(future.result(0), printed) for future, printed in records]
        expected = [(meta.timestamp_ms, meta.partition, meta.offset, *printed) for meta, printed in places]
        assert sorted(found[codec]) == sorted(expected)
        for partition in range(PARTITIONS):
            offsets = [meta.offset for meta, _ in places if meta.partition == partition]
            assert offsets == list(range(len(offsets)))
