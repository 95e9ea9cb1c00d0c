"""A few thousand mutated frames and records of unauthenticated clients, while another client is served."""

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ops import secured
from ops.broker import SETTINGS, Broker
from ops.free_ports import free_ports
from ops.reliability.chance import source
from ops.reliability.fuzzer import STRANGERS, Fuzzer
from tests.support.deadline import deadline_s, wait_until

FRAMES = 3000
RATE = 10_000.0
#: The broker's log lines for an internal exception.
FAULTS = ("error on connection", "Traceback")


@pytest.mark.timeout(300)
def test_strangers_harm_nobody(tmp_path: Path) -> None:
    """Before, within and after SASL, in plain text and inside TLS, and TLS itself: all get a response or are closed."""
    seed = source(0, str(tmp_path)).randrange(2**32)
    print(f"seed {seed}")
    secured.make_certificates(tmp_path)
    ports = dict(zip(secured.PROTOCOLS, free_ports(len(secured.PROTOCOLS)), strict=True))
    settings = {**secured.settings(tmp_path, ports), "connection.failed.authentication.delay.ms": "10"}
    with Broker(tmp_path, {**SETTINGS, **settings}) as broker:
        secured.make_user({"bootstrap.servers": broker.bootstrap})
        wait_until(lambda: all(broker.processes().values()), "a process of each role")
        before = broker.processes()
        producer = Producer(secured.client(tmp_path, "SASL_SSL", ports["SASL_SSL"]))
        fuzzer = Fuzzer(STRANGERS, ports, secured.authority_of(tmp_path), seed, FRAMES, RATE)
        fuzzer.start()
        try:
            end = time.monotonic() + 2 * deadline_s()
            while (numbers := fuzzer.numbers())["frames"] < FRAMES:
                assert time.monotonic() < end, numbers
                producer.produce("served", b"record")
                producer.poll(0)
                fuzzer.join(0.2)
        finally:
            fuzzer.stop()
        assert producer.flush(deadline_s()) == 0
        assert broker.processes() == before, "no process has died"
        assert not [line for line in broker.log_lines() if any(fault in line for fault in FAULTS)]
    assert (numbers["stuck"], numbers["unprovoked"]) == (0, 0), numbers
    assert numbers["answered"] > FRAMES / 10
    assert numbers["closed"] > FRAMES / 10
