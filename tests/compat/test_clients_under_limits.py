"""Three unmodified clients under each kind of limit: its effects on the application, which must finish.

A row of LIMITS has a broker of its own, which each program of PROGRAMS uses in turn with a client id of its own. A
limit of the number of connections is used up by connections that close when the client has been seen to meet it. No
application sees an error, except for THROTTLING_QUOTA_EXCEEDED in those that use a version that has it, as with Kafka.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer

from ops.compatibility import preparation
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import wait_until
from tests.support.described_requests import ask
from tests.support.exposition import metrics
from tests.support.quota_client import set_quota
from tests.support.wire_client import WireClient
from tests.support.wire_messages import create_topic

pytestmark = pytest.mark.slow

LIMIT_S = 240
CLIENT, FILLER, TOPIC = "limited", "filler", "limited"
NONE: Mapping[str, Any] = {}
#: Few windows, so that the allowance is used up soon.
SETTINGS = {
    "num.network.threads": 2,
    "num.io.threads": 2,
    "quota.window.num": 3,
    "controller.quota.window.num": 3,
    "broker.quota.white.list.client.id": FILLER,
}
PYTHON = sys.executable, "-W", "ignore::DeprecationWarning", str(preparation.SOURCES / "python" / "limited.py")
JAVA = "java", "-XX:TieredStopAtLevel=1", "-cp", f"{preparation.CLASSES}:{preparation.JARS}/*", "Limited"

#: By name, the command.
PROGRAMS: dict[str, tuple[str, ...]] = {
    "java": JAVA,
    "librdkafka": PYTHON,
    "franz-go": (str(preparation.GO_LIMITED),),
}
#: The client id of each.
BY_PROGRAM = [{"client-id": f"{CLIENT}-{program}"} for program in PROGRAMS]
#: One client shows a limit in ops/test, the others in ops/compat.
MARKED = [
    "librdkafka",
    pytest.param("java", marks=[pytest.mark.compat, pytest.mark.needs("java")]),
    pytest.param("franz-go", marks=[pytest.mark.compat, pytest.mark.needs("go")]),
]
#: They create topics by a version that has THROTTLING_QUOTA_EXCEEDED; the others are throttled afterwards.
STRICT = {"java", "franz-go"}
#: Connections that use up a limit of their number; clients have two at a time.
HELD = 4

BLOCKED = "rotunda_acceptor_blocked_seconds_total"
REFUSED = "rotunda_acceptor_connections_refused_total"
DELAYED, PARKED = "rotunda_acceptor_accept_throttled_total", "rotunda_acceptor_ip_accept_throttled_total"
MUTED = "rotunda_request_throttle_seconds_sum"


class Limit(NamedTuple):
    """One kind of limit, the load that meets it, and its effects: the broker's metric, and the client's view."""

    row: str
    work: str
    count: int
    metric: str
    settings: Mapping[str, object] = NONE
    #: Of each client's id, or of the entity.
    quotas: Mapping[str, float] = NONE
    entity: Mapping[str, str] = NONE
    is_held: bool = False
    has_throttle_time: bool = False
    is_closed: bool = False


LISTENER = "listener.name.plaintext."
PRODUCE = {"work": "produce", "count": 25, "metric": MUTED, "has_throttle_time": True}
CONSUME = {"work": "consume", "count": 25, "metric": MUTED, "has_throttle_time": True}
REQUESTS = {"work": "requests", "metric": MUTED, "has_throttle_time": True}
HOLD = {"work": "connect", "count": 2, "is_held": True}
CONNECT = {"work": "connect", "count": 4}

LIMITS: dict[str, Limit] = {
    "connections of the broker": Limit("A07", metric=BLOCKED, settings={"max.connections": HELD}, **HOLD),
    "connections of a listener": Limit("A08", metric=BLOCKED, settings={f"{LISTENER}max.connections": HELD}, **HOLD),
    "connections of an address": Limit(
        "A14", metric=REFUSED, settings={"max.connections.per.ip": HELD}, is_closed=True, **HOLD
    ),
    "connections of an address by name": Limit(
        "A15",
        metric=REFUSED,
        settings={"max.connections.per.ip": 1000, "max.connections.per.ip.overrides": f"localhost:{HELD}"},
        is_closed=True,
        **HOLD,
    ),
    "new connections of the broker": Limit(
        "A10", metric=DELAYED, settings={"max.connection.creation.rate": 2}, **CONNECT
    ),
    "new connections of a listener": Limit(
        "A10", metric=DELAYED, settings={f"{LISTENER}max.connection.creation.rate": 2}, **CONNECT
    ),
    "new connections of an address": Limit(
        "A12",
        metric=PARKED,
        quotas={"connection_creation_rate": 2},
        entity={"ip": "127.0.0.1"},
        is_closed=True,
        **CONNECT,
    ),
    "new connections that are refused": Limit(
        "A13", metric=PARKED, settings={"connection.refusal.rate": 2}, is_closed=True, **CONNECT
    ),
    "produced bytes": Limit("E11", quotas={"producer_byte_rate": 50_000}, **PRODUCE),
    "fetched bytes": Limit("E12", quotas={"consumer_byte_rate": 50_000}, **CONSUME),
    "request time": Limit("E13", quotas={"request_percentage": 0.01}, count=5, **REQUESTS),
    "controller mutations": Limit("E15", "topics", 6, MUTED, quotas={"controller_mutation_rate": 1}),
    "bytes produced by all": Limit("E18", settings={"broker.quota.produce.bytes": 50_000}, **PRODUCE),
    "bytes fetched by all": Limit("E18", settings={"broker.quota.fetch.bytes": 50_000}, **CONSUME),
    "requests of all": Limit("E18", settings={"broker.quota.request.rate": 10}, count=40, **REQUESTS),
}


class Limited(NamedTuple):
    """A broker that has a limit."""

    broker: BrokerProcess
    limit: Limit


@pytest.fixture(scope="module", params=LIMITS.values(), ids=[f"{each.row} {name}" for name, each in LIMITS.items()])
def limited(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Limited]:
    """Run a broker with a limit for all programs, with the topic and its records."""
    limit: Limit = request.param
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"), {**SETTINGS, **limit.settings}).start()
    try:
        with WireClient(broker.port) as wire:
            if limit.work != "topics":
                create_topic(wire, TOPIC, 1)
            if limit.work == "consume":
                fill(broker, limit.count)
            for each in [limit.entity] if limit.entity else BY_PROGRAM:
                if limit.quotas:
                    set_quota(wire, each, **limit.quotas)
        yield Limited(broker, limit)
    finally:
        broker.stop()


def fill(broker: BrokerProcess, count: int) -> None:
    """Write the records that are to be read."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": FILLER, "batch.size": 20_000})
    for _ in range(count):
        producer.produce(TOPIC, bytes(10_000), partition=0)
    assert producer.flush(LIMIT_S) == 0


@pytest.mark.parametrize("program", MARKED)
def test_a07_a08_a10_a12_a14_e11_e12_e13_e15_e18_what_a_client_sees_of_a_limit(limited: Limited, program: str) -> None:
    """It finishes, later; it gets a throttle time, or is closed and reconnects, and sees no error."""
    command = PROGRAMS[program]
    broker, limit = limited
    topic = f"{TOPIC}-{program}" if limit.work == "topics" else TOPIC
    with ExitStack() as stack:
        held = [
            wait_until(lambda: one_more(broker, stack), "a connection") for _ in range(HELD if limit.is_held else 0)
        ]
        before = metrics(broker, limit.metric)

        def is_met() -> bool:
            return metrics(broker, limit.metric) > before

        seen = run(
            [*command, broker.bootstrap, f"{CLIENT}-{program}", topic, limit.work, str(limit.count)],
            lambda: limit.is_held and release(held, is_met),
        )
        wait_until(is_met, limit.metric)
    done = 2 if limit.work == "topics" else limit.count
    is_refused = limit.work == "topics" and program in STRICT
    assert seen["errors"] == (["THROTTLING_QUOTA_EXCEEDED"] if is_refused else []), seen
    assert seen["done"] == done, seen
    # A CreateTopics response has the time as well; that of another API is hidden from an application.
    if limit.work != "topics":
        assert (seen["throttle_ms"] > 0) == limit.has_throttle_time, seen
    assert seen["closed"] == limit.is_closed, seen


def one_more(broker: BrokerProcess, stack: ExitStack) -> WireClient | None:
    """Return a connection that is served; None while ended ones still count."""
    wire = stack.enter_context(WireClient(broker.port))
    try:
        assert ask(wire, 18, 0, {}).error_code == 0
    except (AssertionError, OSError):
        return None
    return wire


def release(held: list[WireClient], is_met: Callable[[], bool]) -> None:
    """Close the connections that use up the limit when a client has met it."""
    wait_until(is_met, "the limit to be met")
    for each in held:
        each.close()


def run(command: list[str], meanwhile: Callable[[], object]) -> dict[str, Any]:
    """Run a program and call a function meanwhile; return the program's output."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            meanwhile()
            output, errors = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            output, errors = process.communicate()
            pytest.fail(f"{command} is not done after {LIMIT_S} s: {output} {errors}")
        finally:
            process.kill()
    assert output, errors
    seen: dict[str, Any] = json.loads(output.splitlines()[-1])
    return seen
