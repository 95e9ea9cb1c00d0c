"""A FastStream application: counts orders by customer and sends a receipt for each order and for each batch of them.

Command line: kafka (aiokafka) or confluent (librdkafka), bootstrap address, group, and the topics of orders, receipts
and batches; a final `stumble` makes each hundredth order fail at its first delivery. A receipt has the number of orders
of its customer that this process had handled before.
"""

import asyncio
import sys
from collections import Counter

from faststream import AckPolicy, FastStream
from pydantic import BaseModel

library, bootstrap, group, orders, receipts, batches = sys.argv[1:7]

if library == "kafka":
    from faststream.kafka import KafkaBroker as Broker
else:
    from faststream.confluent import KafkaBroker as Broker

broker = Broker(bootstrap)
app = FastStream(broker)
taken: Counter[str] = Counter()
stumbles = sys.argv[7:] == ["stumble"]
stumbled: set[int] = set()


class Order(BaseModel):
    """The value of each record."""

    number: int
    customer: str


class Receipt(Order):
    """The receipt of an order."""

    before: int


class Batch(BaseModel):
    """The receipt of the orders that arrived in one batch."""

    numbers: list[int]


settings = {"auto_offset_reset": "earliest", "session_timeout_ms": 6000, "heartbeat_interval_ms": 500}
receipt_publisher = broker.publisher(receipts)


@broker.subscriber(orders, group_id=f"{group}-each", ack_policy=AckPolicy.NACK_ON_ERROR, **settings)
async def take(order: Order) -> None:
    """Send a receipt for an order."""
    if stumbles and order.number % 100 == 0 and order.number not in stumbled:
        stumbled.add(order.number)
        raise RuntimeError(f"order {order.number} is taken at its next delivery")
    receipt = Receipt(number=order.number, customer=order.customer, before=taken[order.customer])
    taken[order.customer] += 1
    await receipt_publisher.publish(receipt, key=order.customer.encode())


@broker.subscriber(orders, group_id=f"{group}-batches", batch=True, ack_policy=AckPolicy.ACK, **settings)
@broker.publisher(batches)
async def count(together: list[Order]) -> Batch:
    """Return the numbers of the orders of one batch."""
    return Batch(numbers=[order.number for order in together])


if __name__ == "__main__":
    asyncio.run(app.run())
