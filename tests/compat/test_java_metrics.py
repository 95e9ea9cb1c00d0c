"""Metrics that Java's producer, consumer and share consumer push (KIP-714), on the status page and in the request log.

The clients are in Kafka's tools. Without a plugin Apache Kafka asks no client for metrics: there is nothing to compare.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from ops.compatibility import clients, preparation
from tests.support.broker_process import BrokerProcess
from tests.support.client_metrics import subscribe
from tests.support.deadline import wait_until
from tests.support.request_log import Start, recording_brokers, rows
from tests.support.wire_client import WireClient
from tests.support.wire_messages import create_topic

pytestmark = [pytest.mark.slow, pytest.mark.needs("java")]

TOPIC = "pushed"
TOOLS = "org.apache.kafka.tools."
#: By client id, a tool that runs until it is stopped, and a part of the names of its metrics.
CLIENTS = {
    "java-writer": ("ProducerPerformance", "org.apache.kafka.producer."),
    "console-consumer": ("consumer.ConsoleConsumer", "org.apache.kafka.consumer.coordinator."),
    "console-share-consumer": ("consumer.ConsoleShareConsumer", "org.apache.kafka.consumer.share."),
}
#: Beyond those of any client.
MOST_SERIES = 500


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    yield from recording_brokers(tmp_path)


def command(tool: str, bootstrap: str) -> list[str]:
    """Return the command of a tool."""
    classes = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{preparation.JARS}/*", TOOLS + tool, "--topic", TOPIC]
    if "Consumer" in tool:
        return [*classes, "--bootstrap-server", bootstrap]
    properties = [f"bootstrap.servers={bootstrap}", "client.id=java-writer"]
    return [
        *(*classes, "--num-records", "1000000", "--record-size", "10", "--throughput", "100"),
        *("--producer-props", *properties),
    ]


def page(broker: BrokerProcess, path: str) -> str:
    with urlopen(broker.status()["status_url"] + path) as response:  # noqa: S310 - our own address
        text: str = response.read().decode()
        return text


def test_t16_t19_metrics_of_java_clients_are_on_the_page_and_in_the_request_log(start: Start) -> None:
    broker = start(client_telemetry_receiver_enable="true", status_page_enable=True, metrics_per_client=True)
    with WireClient(broker.port) as wire:
        create_topic(wire, TOPIC, 1)
        subscribe(wire, metrics="*", interval_ms="500", match="client_software_name=apache-kafka-java")
    with ExitStack() as stack:
        for tool, _ in CLIENTS.values():
            process = subprocess.Popen(
                command(tool, broker.bootstrap), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
        pushed: list[dict[str, Any]] = []

        def is_logged() -> bool:
            pushed[:] = rows(broker, "client_metrics")
            found = {
                (row["clientId"], prefix) for row in pushed for _, prefix in CLIENTS.values() if prefix in row["name"]
            }
            return found >= {(client_id, prefix) for client_id, (_, prefix) in CLIENTS.items()}

        wait_until(is_logged, "metrics of all clients")

        def is_shown() -> bool:
            instances = json.loads(page(broker, "status.json"))["client_instances"]
            return {each["client_id"] for each in instances if each["metrics"]} == set(CLIENTS)

        # Handlers publish them once somebody looks.
        wait_until(is_shown, "all clients on the page")
        lines = [line for line in page(broker, "metrics").splitlines() if line.startswith("rotunda_client_metric{")]
        assert len(CLIENTS) < len(lines) <= len(CLIENTS) * MOST_SERIES
    software = {(row["softwareName"], row["softwareVersion"]) for row in pushed}
    assert software == {("apache-kafka-java", clients.KAFKA())}
