"""A Bytewax dataflow: sums orders by key in windows, and joins each order with its payment.

Its windows, joins and offsets are snapshots in a recovery store. Its parameters are environment variables: BOOTSTRAP,
ORDERS, PAYMENTS, SUMS, PAID, and TAIL when it is to wait for more records at the end of the topics.
"""

import json
import os
from datetime import UTC, datetime, timedelta

from bytewax import operators as op
from bytewax.connectors.kafka import KafkaSinkMessage, KafkaSource, KafkaSourceMessage
from bytewax.connectors.kafka import operators as kop
from bytewax.dataflow import Dataflow
from bytewax.operators import windowing as win

WINDOW = timedelta(seconds=10)
FIRST = datetime(2023, 11, 14, tzinfo=UTC)

brokers = [os.environ["BOOTSTRAP"]]
tail = "TAIL" in os.environ


def read(message: KafkaSourceMessage) -> tuple[str, dict]:
    return message.key.decode(), {**json.loads(message.value), "time_ms": message.timestamp[1]}


def sent(key: str, value: object) -> KafkaSinkMessage:
    return KafkaSinkMessage(key.encode(), json.dumps(value).encode())


def time_of(value: dict) -> datetime:
    return datetime.fromtimestamp(value["time_ms"] / 1000, UTC)


flow = Dataflow("orders")
source = KafkaSource(brokers, [os.environ["ORDERS"]], tail=tail, batch_size=50)
orders = op.map("read order", op.input("orders", flow, source), read)
source = KafkaSource(brokers, [os.environ["PAYMENTS"]], tail=tail, batch_size=50)
payments = op.map("read payment", op.input("payments", flow, source), read)

# Event time, from the records: the snapshots of a killed process hold its progress.
clock = win.EventClock(time_of, timedelta(days=1), now_getter=lambda: FIRST, to_system_utc=lambda _: None)
windows = win.fold_window(
    "windows",
    orders,
    clock,
    win.TumblingWindower(WINDOW, FIRST),
    builder=int,
    folder=lambda total, value: total + value["number"],
    merger=lambda one, other: one + other,
)
sums = op.map("sum", windows.down, lambda each: sent(each[0], {"window": each[1][0], "sum": each[1][1]}))
kop.output("sums", sums, brokers=brokers, topic=os.environ["SUMS"])


def number_of(value: dict) -> str:
    return str(value["number"])


by_order = op.key_on("order number", op.key_rm("order", orders), number_of)
by_payment = op.key_on("paid number", op.key_rm("payment", payments), number_of)
joined = op.join("join", by_order, by_payment)
paid = op.map("paid order", joined, lambda each: sent(each[0], {"amounts": [side["amount"] for side in each[1]]}))
kop.output("paid orders", paid, brokers=brokers, topic=os.environ["PAID"])
