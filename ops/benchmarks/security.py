"""The cost of TLS and SASL: one client over PLAINTEXT, SSL and SASL_SSL, on Rotunda and on Apache Kafka in turns.

Each has a broker of its own here, with a listener of each protocol. Shares of the same broker's PLAINTEXT can be
compared, rates cannot: the client, librdkafka, encrypts as well, and uses its part of the machine.

The number of bytes before a batch decides how much of it librdkafka copies into one buffer, and so the number of TLS
records: up to two for each record. So the topics of all protocols have names of one length, and producing is measured
with a length that leads to few TLS records and one that leads to many: both brokers get the same.
"""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from ops.benchmarks import kafka, processor_time, programs
from ops.benchmarks.comparison import KAFKA, ROTUNDA, Comparison, Side
from ops.benchmarks.processor_time import Spent
from ops.benchmarks.programs import MeasurementError
from ops.free_ports import free_ports

RECORD = bytes(1000)
RECORDS = 80_000
SINGLE_RECORDS = 1000
#: Lengths of topics' names with which librdkafka 2.16 cuts a MB of these records into 630 records of TLS, and 1,265.
FEW_PIECES, MANY_PIECES = 18, 9
DEADLINE_S = 120.0
USER, PASSWORD = "bench", "bench-password"
MECHANISM = "SCRAM-SHA-256"
PLAIN = "PLAINTEXT"
PROTOCOLS = (PLAIN, "SSL", "SASL_SSL")
BROKERS = (ROTUNDA, KAFKA)
#: Rotunda's share that remains under TLS, divided by Kafka's.
KEPT_OVER_TLS = 1.0

#: A client's settings for one listener.
Settings = dict[str, Any]
#: Returns the processor time of a broker's parts so far.
Spending = Callable[[], dict[str, Spent]]


class Load(NamedTuple):
    """One measurement: its name, a function that returns its rate in records a second, and its topics' length."""

    name: str
    measure: Callable[[Settings, str], float]
    records: int
    name_letters: int


def measure(directory: Path, turns: int, own: list[str]) -> list[Comparison]:
    """Return the rates over PLAINTEXT, and the remaining shares over the others; ``own``: Rotunda's settings."""
    sides = {(load.name, protocol): {who: Side() for who in BROKERS} for load in LOADS for protocol in PROTOCOLS}
    with brokers(directory, own) as (clients, spent):
        order = [(who, protocol) for who in BROKERS for protocol in PROTOCOLS]
        # The first turn warms both up.
        for turn in range(-1, turns):
            # Later measurements run while more of the disk's writes are under way.
            order.append(order.pop(0))
            for load in LOADS:
                found = {each: turn_of(load, clients[each], each[1], spent[each[0]]) for each in order}
                for (who, protocol), (rate, cost) in found.items():
                    share = rate / found[who, PLAIN][0] if protocol != PLAIN else rate
                    if turn >= 0:
                        sides[load.name, protocol][who].add(share, load.records, cost)
    return [compared(load, protocol, sides[load.name, protocol]) for load in LOADS for protocol in PROTOCOLS]


def turn_of(load: Load, settings: Settings, protocol: str, spent: Spending) -> tuple[float, dict[str, Spent]]:
    """Return the rate of one turn, and the processor time that the broker used."""
    before = spent()
    return load.measure(settings, topic_of(protocol, load.name_letters)), processor_time.since(before, spent())


def compared(load: Load, protocol: str, sides: dict[str, Side]) -> Comparison:
    """Return the line of a load over a protocol."""
    if protocol == PLAIN:
        return Comparison(f"{load.name}, over {PLAIN} (a record)", "records/s", sides, None)
    title = f"{load.name}, over {protocol} (a record): share of {PLAIN}"
    return Comparison(title, "", sides, KEPT_OVER_TLS, decimals=2)


@contextmanager
def brokers(directory: Path, own: list[str]) -> Iterator[tuple[dict[tuple[str, str], Settings], dict[str, Spending]]]:
    """Start both brokers with a listener of each protocol.

    Yields the clients' settings by broker and protocol, and a function that returns each broker's processor time.
    """
    made = subprocess.run(
        programs.rotunda("tls", "init", "--dir", str(directory / "tls")), capture_output=True, text=True, check=False
    )
    if made.returncode:
        raise MeasurementError(made.stdout + made.stderr)
    ports = {who: free_ports(len(PROTOCOLS)) for who in BROKERS}
    theirs = dict(pair.split("=", 1) for pair in settings(directory, ports[KAFKA]))
    controller = free_ports(1)[0]
    theirs["listeners"] += f",CONTROLLER://127.0.0.1:{controller}"
    theirs["controller.quorum.bootstrap.servers"] = f"127.0.0.1:{controller}"
    theirs["listener.security.protocol.map"] = (
        ",".join(f"{each}:{each}" for each in PROTOCOLS) + ",CONTROLLER:PLAINTEXT"
    )
    with ExitStack() as running:
        set_here = [*own, *settings(directory, ports[ROTUNDA])]
        ours = running.enter_context(programs.broker(directory / "secure-rotunda", set_here))
        java = running.enter_context(kafka.kafka(directory / "secure-kafka", theirs))
        spent: dict[str, Spending] = {
            ROTUNDA: partial(ours.spent, ours.roles()),
            KAFKA: partial(java.spent, java.threads()),
        }
        found = {}
        for who in BROKERS:
            for protocol, port in zip(PROTOCOLS, ports[who], strict=True):
                found[who, protocol] = client(directory, protocol, port)
            prepare(found[who, PLAIN])
        yield found, spent


def settings(directory: Path, ports: list[int]) -> list[str]:
    """Return the settings of a broker for its three listeners, each as key=value."""
    listeners = ",".join(f"{each}://127.0.0.1:{port}" for each, port in zip(PROTOCOLS, ports, strict=True))
    return [
        f"listeners={listeners}",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={directory / 'tls/server.pem'}",
        f"sasl.enabled.mechanisms={MECHANISM}",
        f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config="
        "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    ]


def client(directory: Path, protocol: str, port: int) -> Settings:
    """Return librdkafka's settings for a listener."""
    found: Settings = {"bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": protocol}
    if protocol != PLAIN:
        found["ssl.ca.location"] = str(directory / "tls/ca.pem")
    if protocol == "SASL_SSL":
        found |= {"sasl.mechanism": MECHANISM, "sasl.username": USER, "sasl.password": PASSWORD}
    return found


def prepare(plain: Settings) -> None:
    """Create the topics of each protocol, and the user."""
    admin = AdminClient(plain)
    names = [topic_of(protocol, letters) for protocol in PROTOCOLS for letters in (FEW_PIECES, MANY_PIECES)]
    for future in admin.create_topics([NewTopic(name, 1) for name in names]).values():
        future.result(DEADLINE_S)
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion(USER, credential, PASSWORD.encode())
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(DEADLINE_S)


def topic_of(protocol: str, letters: int) -> str:
    """Return the topic of a protocol, with a name of this many letters."""
    return protocol.lower().ljust(letters, "-")


def produced(settings: Settings, topic: str) -> float:
    """Return the rate of produced records, in batches of 128 KB."""
    producer = Producer({**settings, "linger.ms": 5, "batch.size": 131_072, "acks": 1})
    connect(producer, topic)
    begun = time.monotonic()
    for number in range(RECORDS):
        producer.produce(topic, RECORD, partition=0)
        if not number % 1000:
            producer.poll(0)
    if producer.flush(DEADLINE_S):
        raise MeasurementError(f"records were not acknowledged in {DEADLINE_S:.0f} s")
    return RECORDS / (time.monotonic() - begun)


def fetched(settings: Settings, topic: str) -> float:
    """Return the rate of fetched records, the last ones of the log, which are cached."""
    consumer = Consumer(
        {**settings, "group.id": "bench", "enable.auto.commit": False, "fetch.message.max.bytes": 1 << 20}
    )
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=DEADLINE_S)
        begun, count = time.monotonic(), 0
        consumer.assign([TopicPartition(topic, 0, end - RECORDS)])
        while count < RECORDS:
            count += len(consumer.consume(1000, timeout=1.0))
            if time.monotonic() - begun > DEADLINE_S:
                raise MeasurementError(f"{count} of {RECORDS} records were read in {DEADLINE_S:.0f} s")
        return RECORDS / (time.monotonic() - begun)
    finally:
        consumer.close()


def connect(producer: Producer, topic: str) -> None:
    """Have the first record acknowledged: handshakes are over then."""
    producer.produce(topic, RECORD, partition=0)
    if producer.flush(DEADLINE_S):
        raise MeasurementError(f"the first record was not acknowledged in {DEADLINE_S:.0f} s")


def one_by_one(settings: Settings, topic: str) -> float:
    """Return the rate of produced records when each waits for the response to the one before."""
    producer = Producer({**settings, "linger.ms": 0, "acks": 1})
    connect(producer, topic)
    begun = time.monotonic()
    for _ in range(SINGLE_RECORDS):
        producer.produce(topic, RECORD, partition=0)
        producer.flush(DEADLINE_S)
    return SINGLE_RECORDS / (time.monotonic() - begun)


LOADS = (
    Load("librdkafka's Produce in batches of 128 KB", produced, RECORDS, FEW_PIECES),
    Load("librdkafka's Produce in batches of 128 KB, in twice as many records of TLS", produced, RECORDS, MANY_PIECES),
    Load("librdkafka's Fetch of cached data", fetched, RECORDS, FEW_PIECES),
    Load(
        "librdkafka's Produce of one record, each waits for the answer before", one_by_one, SINGLE_RECORDS, FEW_PIECES
    ),
)
