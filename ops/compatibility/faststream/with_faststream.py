"""FastStream over aiokafka and librdkafka: receipts by record and by batch, redelivery, a process killed midway."""

import json
from collections import Counter
from functools import partial

from applications import (
    COUNT,
    application,
    committed,
    fill,
    key_of,
    new_topics,
    records,
    require_running_totals,
    wait_for,
)
from checks import require, run, unique


def value_of(number: int) -> dict[str, object]:
    return {"number": number, "customer": key_of(number)}


def receipts(library: str, bootstrap: str) -> None:
    """Handle all orders in one process: each has one receipt, its customer's in order, and is in one batch."""
    topics = new_topics(bootstrap, "orders", "receipts", "batches")
    order_topic, receipt_topic, batch_topic = topics
    with application(__file__, library, bootstrap, unique("faststream"), *topics, "stumble") as app:
        fill(bootstrap, order_topic, records(0, COUNT, value_of))
        wait_for("receipts", (app,), lambda: len(committed(bootstrap, receipt_topic)) >= COUNT)
        wait_for("batches", (app,), lambda: sum(batched(bootstrap, batch_topic).values()) >= COUNT)
        app.stop()
    found = [(key, json.loads(value)) for key, value in committed(bootstrap, receipt_topic)]
    require_running_totals([(key, receipt["before"] + 1) for key, receipt in found], COUNT)
    require(batched(bootstrap, batch_topic) == Counter(range(COUNT)), "an order stands in no batch, or in two")


def at_least_once(library: str, bootstrap: str) -> None:
    """Kill the process midway: the next one resumes from the committed offset, and every order has its receipt.

    No order is rejected: over librdkafka FastStream commits a rejected record with the next one of another partition,
    so a record that is not delivered again before the process dies is lost, against Kafka's brokers too.
    """
    topics = new_topics(bootstrap, "orders", "receipts", "batches")
    order_topic, receipt_topic, batch_topic = topics
    wanted, half = set(range(COUNT)), COUNT // 2
    with application(__file__, library, bootstrap, unique("faststream"), *topics) as app:
        fill(bootstrap, order_topic, records(0, half, value_of))
        wait_for("some receipts", (app,), lambda: committed(bootstrap, receipt_topic))
        app.kill()
        before = len(committed(bootstrap, receipt_topic))
        fill(bootstrap, order_topic, records(half, COUNT, value_of))
        app.start()
        wait_for("all receipts", (app,), lambda: receipted(bootstrap, receipt_topic).keys() >= wanted)
        wait_for("all batches", (app,), lambda: batched(bootstrap, batch_topic).keys() >= wanted)
        app.stop()
    again = [number for number, times in receipted(bootstrap, receipt_topic).items() if times > 1]
    # A process handles one order at a time; commits lag by milliseconds.
    require(len(again) <= 50, f"{len(again)} of {before} orders were taken again")


def receipted(bootstrap: str, topic: str) -> Counter[int]:
    return Counter(json.loads(value)["number"] for _, value in committed(bootstrap, topic))


def batched(bootstrap: str, topic: str) -> Counter[int]:
    return Counter(number for _, value in committed(bootstrap, topic) for number in json.loads(value)["numbers"])


if __name__ == "__main__":
    run(
        {
            "aiokafka: receipts and batches, redelivery": partial(receipts, "kafka"),
            "aiokafka: at least once, the process killed": partial(at_least_once, "kafka"),
            "librdkafka: receipts and batches, redelivery": partial(receipts, "confluent"),
            "librdkafka: at least once, the process killed": partial(at_least_once, "confluent"),
        }
    )
