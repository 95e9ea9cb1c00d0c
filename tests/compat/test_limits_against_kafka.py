"""Connection limits compared with Apache Kafka: the same limits on both, seen by a raw socket and a Java client.

A row of LIMITS is set at a running broker of each kind; when it is in force and used up, both get the same requests.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from tests.compat.test_clients_under_limits import CLIENT, JAVA, LIMIT_S, TOPIC
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import wait_until
from tests.support.described_requests import ask
from tests.support.quota_client import set_quota
from tests.support.shared_kafka import shared_kafka
from tests.support.wire_client import WireClient, request_frame
from tests.support.wire_messages import create_topic

pytestmark = [pytest.mark.slow, pytest.mark.needs("kafka")]

#: Connections that there may be: a client has two at a time.
MOST = 4
#: A connection without a response for so long waits. Both respond in a thousandth of it.
WAITS_S = 1.5
CLIENTS = 2
MADE, LOST = "connection-creation-total", "connection-close-total"

CONFIGS = 4
SET, DELETE = 0, 1


class Limit(NamedTuple):
    """One limit: its setting, and whether it is used up by open connections, or by new ones."""

    settings: Mapping[str, str]
    address_rate: float = 0
    is_held: bool = False
    #: The Java client's view before the open connections close.
    until: str = MADE
    #: Whether a Java client meets it as well; it meets one limit of each reaction that a socket sees.
    has_java: bool = False


LIMITS = {
    "A07 connections of the broker": Limit({"max.connections": str(MOST)}, is_held=True, has_java=True),
    "A08 connections of a listener": Limit({"listener.name.plaintext.max.connections": str(MOST)}, is_held=True),
    "A14 connections of an address": Limit(
        {"max.connections.per.ip": str(MOST)}, is_held=True, until=LOST, has_java=True
    ),
    "A15 connections of an address by name": Limit(
        {"max.connections.per.ip.overrides": f"127.0.0.1:{MOST}"}, is_held=True, until=LOST
    ),
    "A10 new connections of the broker": Limit({"max.connection.creation.rate": "2"}, has_java=True),
    "A10 new connections of a listener": Limit({"listener.name.plaintext.max.connection.creation.rate": "2"}),
    "A12 new connections of an address": Limit({}, address_rate=2, has_java=True),
}


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """Yield the ports of both brokers, which have the topic.

    The Kafka is this module's own: after a transaction a node has a connection to itself, which counts.
    """
    broker = BrokerProcess(tmp_path_factory.mktemp("limits"), {"quota.window.num": "3"}).start()
    with shared_kafka(tmp_path_factory.mktemp("kafka")) as kafka:
        found = {"Rotunda": broker.port, "Apache Kafka": kafka.ports["PLAINTEXT"]}
        for port in found.values():
            with WireClient(port) as wire:
                create_topic(wire, TOPIC, 1)
        yield found
    broker.stop()


@pytest.mark.parametrize("name", LIMITS)
def test_a07_a08_a10_a12_a14_a15_what_is_seen_of_a_limit_beside_kafka(ports: dict[str, int], name: str) -> None:
    """The same reaction, the same error of the socket, and the same in a Java application: none."""
    seen: dict[str, Any] = {}

    def look(who: str, port: int) -> None:
        try:
            seen[who] = under(LIMITS[name], port)
        except BaseException as failure:
            seen[who] = failure

    threads = [threading.Thread(target=look, args=each) for each in ports.items()]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for found in seen.values():
        if isinstance(found, BaseException):
            raise found
    assert seen["Rotunda"] == seen["Apache Kafka"]
    assert not LIMITS[name].has_java or seen["Rotunda"]["java"]["errors"] == []


def under(limit: Limit, port: int) -> dict[str, Any]:
    """Set a limit at a broker, use it up, and return the observations; delete it afterwards."""
    assert is_altered(limit, SET, port)
    try:
        with ExitStack() as stack:
            return held(limit, port, stack) if limit.is_held else too_fast(limit, port)
    finally:
        wait_until(lambda: is_altered(limit, DELETE, port), "the limit to be deleted")


def held(limit: Limit, port: int, stack: ExitStack) -> dict[str, Any]:
    """Return the observations while the limit of open connections is used up."""
    stay: list[WireClient] = []

    def is_taken() -> bool:
        # Open connections may be closed when the limit comes into force, in favour of an earlier one.
        for each in [each for each in stay if outcome(each) != "answered"]:
            each.close()
            stay.remove(each)
        one = WireClient(port)
        stack.callback(one.close)
        seen = outcome(one)
        if len(stay) < MOST and seen == "answered":
            stay.append(one)
            return False
        one.close()
        return len(stay) == MOST and seen != "answered"

    wait_until(is_taken, "the limit to be in force")
    with WireClient(port) as one:
        silent = outcome(one, b"")
    with WireClient(port) as one:
        raw = outcome(one)
        found = {"silent": silent, "asks": _kind(raw)}
        if limit.has_java:
            found["java"] = run_java(port, limit.until, stay)
        while stay:
            stay.pop().close()
        if raw == "waits":
            found["asks at last"] = outcome(one, b"")
    return found


def too_fast(limit: Limit, port: int) -> dict[str, Any]:
    """Return the observations while connections exceed their rate: of some that do, and of a client."""
    # One of an address is closed when its time is over; one of all waits for less than the others' limit.
    reaction, within_s = ("ended", LIMIT_S) if limit.address_rate else ("waits", 0.2)

    def is_felt() -> bool:
        with WireClient(port) as one:
            return _kind(outcome(one, timeout_s=within_s)) == reaction

    wait_until(is_felt, "the limit to be in force")
    with ExitStack() as stack:
        raw = [stack.enter_context(WireClient(port)) for _ in range(6)]
        # How many are served all the same is a matter of time.
        seen = {_kind(outcome(one, timeout_s=LIMIT_S)) for one in raw} - {"answered"}
    if not limit.has_java:
        return {"asks": seen}
    java = run_java(port, "", [])
    if limit.address_rate:
        # Whether it connects too fast is a matter of time as well: `test_clients_under_limits` has clients that do.
        del java["closed"]
    return {"asks": seen, "java": java}


def _kind(seen: str) -> str:
    """Return an outcome: whether a connection that is closed with a request unread is reset is a matter of time."""
    return "ended" if seen in {"end", "reset"} else seen


def outcome(one: WireClient, data: bytes = request_frame(18, 0, 1), timeout_s: float = WAITS_S) -> str:
    """Return the outcome of a connection that sends this: a response, a wait, its end or a reset."""
    one.socket.settimeout(timeout_s)
    try:
        one.socket.sendall(data)
        return "answered" if one.socket.recv(1 << 16) else "end"
    except TimeoutError:
        return "waits"
    except ConnectionError:
        return "reset"


def run_java(port: int, until: str, stay: list[WireClient]) -> dict[str, Any]:
    """Run the Java client; close the open connections when it has shown its first observations."""
    command = [*JAVA, f"127.0.0.1:{port}", CLIENT, TOPIC, "connect", str(CLIENTS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        timer = threading.Timer(LIMIT_S, process.kill)
        timer.start()
        assert process.stdout is not None
        assert process.stderr is not None
        last = ""
        for line in process.stdout:
            if line.strip() == until:
                while stay:
                    stay.pop().close()
            last = line
        timer.cancel()
        errors = process.stderr.read()
    assert last, errors
    seen: dict[str, Any] = json.loads(last)
    return seen


def is_altered(limit: Limit, operation: int, port: int) -> bool:
    """Set a limit, or delete it; False if it rejects the connection of the request itself."""
    try:
        with WireClient(port) as wire:
            alter(wire, limit, operation)
    except (AssertionError, OSError):
        return False
    return True


def alter(wire: WireClient, limit: Limit, operation: int) -> None:
    """Set a limit, or delete it."""
    if limit.address_rate:
        set_quota(wire, {"ip": "127.0.0.1"}, connection_creation_rate=limit.address_rate if operation == SET else None)
        return
    configs = [{"name": key, "config_operation": operation, "value": value} for key, value in limit.settings.items()]
    resource = {"resource_type": CONFIGS, "resource_name": "1", "configs": configs}
    [result] = ask(wire, 44, 1, {"resources": [resource]}).responses
    assert result.error_code == 0, result.error_message
