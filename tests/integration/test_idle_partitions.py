"""A consumer of many idle partitions among others: its polls cost what they name, and no client waits for them."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s, wait_until
from tests.support.wire_client import WireClient

PARTITIONS = 1000
API_VERSIONS = 18

#: Most bystanders' waiting time, on a machine that also does other things. It was seconds for each poll.
LONG_S = 2.0


def test_a_consumer_of_a_thousand_idle_partitions_holds_nobody_up(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, {"num.io.threads": 2, "num.network.threads": 1}).start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("wide", PARTITIONS)])["wide"].result(deadline_s())
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "idle", "enable.auto.commit": False})
        consumer.assign([TopicPartition("wide", index, 0) for index in range(PARTITIONS)])
        # Each connection has its handler: some of these share that of the consumer.
        bystanders = [WireClient(broker.port) for _ in range(6)]
        for bystander in bystanders:
            bystander.call(API_VERSIONS, 0)
        rounds_s = []
        until = time.monotonic() + 3
        while time.monotonic() < until:
            consumer.poll(0)
            began = time.monotonic()
            for bystander in bystanders:
                bystander.call(API_VERSIONS, 0)
            rounds_s.append(time.monotonic() - began)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("wide", b"at last", partition=PARTITIONS - 1)
        assert producer.flush(deadline_s()) == 0
        message = wait_until(lambda: consumer.poll(0.1), "the record")
        assert (message.error(), message.value()) == (None, b"at last")
        consumer.close()
        for bystander in bystanders:
            bystander.close()
        assert median(rounds_s) < LONG_S
    finally:
        broker.stop()
