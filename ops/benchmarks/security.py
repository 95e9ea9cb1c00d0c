"""What TLS and SASL cost: one client over PLAINTEXT, SSL and SASL_SSL, on this broker and on Apache Kafka in turns.

`python -m ops.benchmarks.security` prints medians of all rounds as shares of the same broker's PLAINTEXT. Only shares
can be compared: the client, librdkafka, encrypts as well, and takes its part of the machine. Exit status 2 when a
program failed.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from ops.benchmarks import kafka, programs
from ops.benchmarks.programs import MeasurementError

ROUNDS = 9
RECORD = bytes(1000)
RECORDS = 80_000
SINGLE_RECORDS = 1000
DEADLINE_S = 120.0
USER, PASSWORD = "bench", "bench-password"
MECHANISM = "SCRAM-SHA-256"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_SSL")
BROKERS = ("Rotunda", "Apache Kafka")

#: A client's settings for one listener.
Settings = dict[str, Any]


class Load(NamedTuple):
    """One thing to measure: what it is, and what returns its rate in records a second."""

    name: str
    measure: Callable[[Settings, str], float]


def main() -> int:
    """Measure and print; returns the exit status."""
    try:
        kafka.prepare()
        with tempfile.TemporaryDirectory(prefix="rotunda-security-") as name, ExitStack() as stack:
            clients = brokers(Path(name), stack)
            rates = measured(clients)
    except MeasurementError as failure:
        print(f"security: {failure}", file=sys.stderr)
        return 2
    report(rates)
    return 0


def brokers(directory: Path, stack: ExitStack) -> dict[tuple[str, str], Settings]:
    """Start both brokers with a listener of each protocol; return the clients' settings by broker and protocol."""
    made = subprocess.run(
        programs.rotunda("tls", "init", "--dir", str(directory / "tls")), capture_output=True, text=True, check=False
    )
    if made.returncode:
        raise MeasurementError(made.stdout + made.stderr)
    ports = {who: programs.free_ports(len(PROTOCOLS)) for who in BROKERS}
    stack.enter_context(programs.broker(directory / "ours", list(settings(directory, ports["Rotunda"]))))
    theirs = dict(pair.split("=", 1) for pair in settings(directory, ports["Apache Kafka"]))
    controller = programs.free_ports(1)[0]
    theirs["listeners"] += f",CONTROLLER://127.0.0.1:{controller}"
    theirs["controller.quorum.bootstrap.servers"] = f"127.0.0.1:{controller}"
    theirs["listener.security.protocol.map"] = (
        ",".join(f"{each}:{each}" for each in PROTOCOLS) + ",CONTROLLER:PLAINTEXT"
    )
    stack.enter_context(kafka.kafka(directory / "theirs", theirs))
    found = {}
    for who in BROKERS:
        for protocol, port in zip(PROTOCOLS, ports[who], strict=True):
            found[who, protocol] = client(directory, protocol, port)
        prepare(found[who, "PLAINTEXT"])
    return found


def settings(directory: Path, ports: list[int]) -> list[str]:
    """Return what a broker is set for its three listeners, each as key=value."""
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
    if protocol != "PLAINTEXT":
        found["ssl.ca.location"] = str(directory / "tls/ca.pem")
    if protocol == "SASL_SSL":
        found |= {"sasl.mechanism": MECHANISM, "sasl.username": USER, "sasl.password": PASSWORD}
    return found


def prepare(plain: Settings) -> None:
    """Make a topic for each protocol, and the user."""
    admin = AdminClient(plain)
    for future in admin.create_topics([NewTopic(topic_of(each), 1) for each in PROTOCOLS]).values():
        future.result(DEADLINE_S)
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion(USER, credential, PASSWORD.encode())
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(DEADLINE_S)


def topic_of(protocol: str) -> str:
    """Return the topic that is used over a protocol."""
    return f"over-{protocol.lower()}"


def measured(clients: dict[tuple[str, str], Settings]) -> dict[tuple[str, str, str], float]:
    """Return the median rates by load, broker and protocol."""
    rates: dict[tuple[str, str, str], list[float]] = {}
    order = list(clients.items())
    for number in range(ROUNDS + 1):
        # What is measured later finds more of the disk's writes under way.
        order.append(order.pop(0))
        for (who, protocol), settings in order:
            for load in LOADS:
                rate = load.measure(settings, topic_of(protocol))
                # The first round warms both up.
                if number:
                    rates.setdefault((load.name, who, protocol), []).append(rate)
    return {key: median(values) for key, values in rates.items()}


def produced(settings: Settings, topic: str) -> float:
    """Return at what rate records come in, in batches of 128 KB."""
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
    """Return at what rate the last records go out, which are cached."""
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
    """Return at what rate records come in of which each waits for the answer to the one before."""
    producer = Producer({**settings, "linger.ms": 0, "acks": 1})
    connect(producer, topic)
    begun = time.monotonic()
    for _ in range(SINGLE_RECORDS):
        producer.produce(topic, RECORD, partition=0)
        producer.flush(DEADLINE_S)
    return SINGLE_RECORDS / (time.monotonic() - begun)


LOADS = (Load("Produce", produced), Load("Fetch", fetched), Load("One record at a time", one_by_one))


def report(rates: dict[tuple[str, str, str], float]) -> None:
    """Print a table: rates over PLAINTEXT, and the others as shares of them."""
    print(f"records of {len(RECORD)} bytes, medians of {ROUNDS} rounds, brokers and protocols in turns")
    print("| | | PLAINTEXT, records/s | SSL | SASL_SSL |\n|---|---|---|---|---|")
    for load in LOADS:
        for who in BROKERS:
            plain, *others = (rates[load.name, who, protocol] for protocol in PROTOCOLS)
            print(
                f"| {load.name} | {who} | {plain:,.0f} | " + " | ".join(f"{each / plain:.2f}" for each in others) + " |"
            )


if __name__ == "__main__":
    sys.exit(main())
