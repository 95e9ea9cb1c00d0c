"""The cost of TLS and SASL: one client over PLAINTEXT, SSL and SASL_SSL, on Rotunda and on Apache Kafka in turns.

Each has a broker of its own here, with a listener of each protocol. Shares of the same broker's PLAINTEXT can be
compared, rates cannot: the client, librdkafka, encrypts as well, and uses its part of the machine.

The number of bytes before a batch decides how much of it librdkafka copies into one buffer, and so the number of TLS
records: up to two for each record. So the topics of all protocols have names of one length, and producing is measured
with a length that leads to few TLS records and one that leads to many: both brokers get the same.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer

from ops import secured
from ops.benchmarks import kafka, librdkafka
from ops.benchmarks.comparison import KAFKA, ROTUNDA, Comparison, Side
from ops.benchmarks.librdkafka import Settings
from ops.broker import Broker
from ops.free_ports import free_ports
from ops.secured import PLAINTEXT

RECORD = bytes(1000)
RECORDS = 80_000
SINGLE_RECORDS = 1000
#: Lengths of topics' names with which librdkafka 2.16 cuts a MB of these records into 630 records of TLS, and 1,265.
FEW_PIECES, MANY_PIECES = 18, 9
SECURE = ("SSL", "SASL_SSL")
PROTOCOLS = (PLAINTEXT, *SECURE)
BROKERS = (ROTUNDA, KAFKA)
#: Rotunda's share that remains under TLS, divided by Kafka's.
KEPT_OVER_TLS = 1.0


class Load(NamedTuple):
    """One measurement: its name, a function that returns its rate in records a second, and its topics' length."""

    name: str
    measure: Callable[[Settings, str], float]
    name_letters: int


def measure(directory: Path, turns: int, own: dict[str, str]) -> list[Comparison]:
    """Return the shares of the rate over PLAINTEXT that remain over the others; ``own``: Rotunda's settings."""
    titles = {(load, protocol): f"{protocol}: {load.name}" for load in LOADS for protocol in SECURE}
    sides = {each: {broker: Side() for broker in BROKERS} for each in titles}
    with brokers(directory, own) as clients:
        order = [(broker, protocol) for broker in BROKERS for protocol in PROTOCOLS]
        # The first turn warms both up.
        for number in range(-1, turns):
            # Later measurements run while more of the disk's writes are under way.
            order.append(order.pop(0))
            for load in LOADS:
                rates = {each: load.measure(clients[each], topic_of(each[1], load.name_letters)) for each in order}
                for (broker, protocol), rate in rates.items():
                    if number >= 0 and protocol != PLAINTEXT:
                        sides[load, protocol][broker].add(rate / rates[broker, PLAINTEXT], 0, {})
    return [Comparison(title, "", sides[each], KEPT_OVER_TLS, decimals=2) for each, title in titles.items()]


@contextmanager
def brokers(directory: Path, own: dict[str, str]) -> Iterator[dict[tuple[str, str], Settings]]:
    """Start both brokers with a listener of each protocol; yield the clients' settings by broker and protocol."""
    secured.make_certificates(directory)
    ports = {broker: dict(zip(PROTOCOLS, free_ports(len(PROTOCOLS)), strict=True)) for broker in BROKERS}
    theirs, [controller] = secured.settings(directory, ports[KAFKA]), free_ports(1)
    theirs["listeners"] += f",CONTROLLER://127.0.0.1:{controller}"
    theirs["controller.quorum.bootstrap.servers"] = f"127.0.0.1:{controller}"
    theirs["listener.security.protocol.map"] = (
        ",".join(f"{each}:{each}" for each in PROTOCOLS) + ",CONTROLLER:PLAINTEXT"
    )
    with ExitStack() as running:
        set_here = {**own, **secured.settings(directory, ports[ROTUNDA])}
        running.enter_context(Broker(directory / "secure-rotunda", set_here))
        running.enter_context(kafka.kafka(directory / "secure-kafka", theirs))
        found = {}
        for broker in BROKERS:
            for protocol, port in ports[broker].items():
                found[broker, protocol] = secured.client(directory, protocol, port)
            librdkafka.create(found[broker, PLAINTEXT], topics())
            secured.make_user(found[broker, PLAINTEXT])
        yield found


def topics() -> list[str]:
    return [topic_of(protocol, letters) for protocol in PROTOCOLS for letters in (FEW_PIECES, MANY_PIECES)]


def topic_of(protocol: str, letters: int) -> str:
    """Return the topic of a protocol, with a name of this many letters."""
    return protocol.lower().ljust(letters, "-")


def one_by_one(settings: Settings, topic: str) -> float:
    """Return the rate of produced records when each waits for the response to the one before."""
    producer = Producer({**settings, "linger.ms": 0, "acks": 1})
    librdkafka.connect(producer, topic, RECORD)
    begun = time.monotonic()
    for _ in range(SINGLE_RECORDS):
        producer.produce(topic, RECORD, partition=0)
        producer.flush(librdkafka.DEADLINE_S)
    return SINGLE_RECORDS / (time.monotonic() - begun)


def produced(settings: Settings, topic: str) -> float:
    """Return the rate of produced records, in batches of 128 KB."""
    batches = {"linger.ms": 5, "batch.size": 131_072, "acks": 1}
    return librdkafka.produced(settings | batches, topic, (RECORD,), RECORDS)


LOADS = (
    Load("Produce, 630 TLS records a MB", produced, FEW_PIECES),
    Load("Produce, 1,265 TLS records a MB", produced, MANY_PIECES),
    Load("Fetch of cached data", partial(librdkafka.fetched, records=RECORDS), FEW_PIECES),
    Load("Produce, one record at a time", one_by_one, FEW_PIECES),
)
