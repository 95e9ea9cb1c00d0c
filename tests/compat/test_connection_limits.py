"""Clients under limits of connections that they have used up: they come through, and no application sees an error."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from ops.compatibility import clients, preparation
from ops.compatibility.brokers import Broker
from ops.compatibility.outcomes import Verdict
from tests.integration.test_limits import metrics
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

#: By program: of its features some that make a number of connections.
FEATURES = {
    "java-tools": ("kafka-producer-perf-test and -consumer-perf-test",),
    "franz-go": ("TestIssue325", "TestConsumeRegex"),
}


@pytest.mark.parametrize("key", FEATURES)
@pytest.mark.parametrize(
    ("limit", "metric"),
    [
        ("max.connection.creation.rate", "rotunda_acceptor_accept_throttled_total"),
        ("connection.refusal.rate", "rotunda_acceptor_ip_accept_throttled_total"),
    ],
)
def test_a10_a12_the_java_client_and_franz_go_come_through(
    broker_directory: Path, key: str, limit: str, metric: str
) -> None:
    """One limit lets them wait, with the other they are closed and connect again."""
    client = clients.by_key(key)
    preparation.prepare(client.part)
    settings = {"num.network.threads": 2, "num.io.threads": 2, "group.initial.rebalance.delay.ms": 0, limit: 2}
    broker = BrokerProcess(broker_directory, settings).start()
    try:

        def is_used_up() -> bool:
            socket.create_connection(("127.0.0.1", broker.port)).close()
            return metrics(broker, metric) > 0

        wait_until(is_used_up, "the limit to be used up")
        before = metrics(broker, metric)
        outcomes = client.run(Broker(broker.bootstrap), FEATURES[key])
        assert outcomes
        assert [outcome for outcome in outcomes if outcome.verdict is not Verdict.PASSED] == []
        wait_until(lambda: metrics(broker, metric) > before, "the metric")
    finally:
        broker.stop()
