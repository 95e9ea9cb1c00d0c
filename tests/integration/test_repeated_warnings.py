"""Log lines about a client that violates the protocol again and again: one line of each kind, and a count."""

import struct
import time

from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.server_log.log_setup import MOST_CHARACTERS
from rotunda.broker.server_log.rate_limit import BURST_BYTES, BYTES_PER_SECOND
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import wait_until
from tests.support.wire_client import WireClient, request_frame

OWN_SETTINGS = {"num.network.threads": 1, "num.io.threads": 1}

#: One line of a kind is logged in this time.
INTERVAL_S = 10


def send_length(broker: BrokerProcess, size: int) -> None:
    with WireClient(broker.port) as client:
        client.send(struct.pack(">i", size))
        client.expect_closed()


def test_a_client_that_breaks_the_protocol_again_and_again_cannot_fill_the_log(own_broker: BrokerProcess) -> None:
    position, begin = own_broker.log_bytes(), time.monotonic()
    for size in range(-300, -100):
        send_length(own_broker, size)
    send_length(own_broker, 3)
    wait_until(lambda: "size 3:" in own_broker.log_text(), "the line of another kind")
    intervals = (time.monotonic() - begin) // INTERVAL_S
    lines = [line for line in own_broker.log_since(position) if "closing connection" in line and "size -" in line]
    assert "size -300:" in lines[0]
    assert len(lines) <= 1 + intervals


def test_no_client_fills_the_log_whatever_it_repeats(own_broker: BrokerProcess) -> None:
    """Each line of code writes a burst, and then a little: a flood reaches a few of them."""
    position, begin = own_broker.log_bytes(), time.monotonic()
    for key in set(range(400)) - {ApiKey.API_VERSIONS}:
        with WireClient(own_broker.port) as client:
            client.send(request_frame(key, 99, 1))
            client.expect_closed()
    with WireClient(own_broker.port) as client:
        client.call(ApiKey.API_VERSIONS, 0)
    most_bytes = BURST_BYTES + MOST_CHARACTERS + BYTES_PER_SECOND * (time.monotonic() - begin)
    assert own_broker.log_bytes() - position < 6 * most_bytes
    assert all("Traceback" not in line for line in own_broker.log_since(position))
