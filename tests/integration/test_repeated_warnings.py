"""What a client that breaks the protocol again and again leaves in the log: one line of each kind, and a count."""

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import wait_until
from tests.support.wire_client import WireClient

#: One line of a kind is logged in this time.
INTERVAL_S = 10


@pytest.fixture
def quiet_broker(broker_directory: Path) -> Iterator[BrokerProcess]:
    """Run a broker of which nobody else makes the log grow, with one processor to count in."""
    broker = BrokerProcess(broker_directory, {"num.network.threads": 1, "num.io.threads": 1}).start()
    yield broker
    broker.stop()


def closing_lines(broker: BrokerProcess, position: int) -> list[str]:
    return [line for line in broker.log_since(position) if "closing connection" in line]


def send_length(broker: BrokerProcess, size: int) -> None:
    with WireClient(broker.port) as client:
        client.send(struct.pack(">i", size))
        client.expect_closed()


@pytest.mark.parametrize("size", [2**31 - 1, -1, 0])
def test_a_nonsensical_length_closes_and_says_so_once(quiet_broker: BrokerProcess, size: int) -> None:
    position = quiet_broker.log_bytes()
    send_length(quiet_broker, size)
    wait_until(lambda: closing_lines(quiet_broker, position), "a log line")
    assert len(closing_lines(quiet_broker, position)) == 1
    assert f"size {size}:" in closing_lines(quiet_broker, position)[0]


def test_a_client_that_breaks_the_protocol_again_and_again_cannot_fill_the_log(quiet_broker: BrokerProcess) -> None:
    position, begin = quiet_broker.log_bytes(), time.monotonic()
    for size in range(-300, -100):
        send_length(quiet_broker, size)
    send_length(quiet_broker, 3)
    wait_until(lambda: "size 3:" in quiet_broker.log_text(), "the line of another kind")
    intervals = (time.monotonic() - begin) // INTERVAL_S
    assert len([line for line in closing_lines(quiet_broker, position) if "size -" in line]) <= 1 + intervals
