"""Metrics that librdkafka pushes (KIP-714), from the subscription to the request log."""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka import Consumer, Producer

from rotunda.broker.protocol.api_keys import ApiKey
from tests.support.broker_process import BrokerProcess
from tests.support.client_metrics import subscribe
from tests.support.deadline import deadline_s, wait_until
from tests.support.described_requests import ask
from tests.support.request_log import Start, rows
from tests.support.status_page import page_text
from tests.support.wire_client import WireClient
from tests.support.wire_messages import create_topic

ON = {"client_telemetry_receiver_enable": "true"}


def pushed(broker: BrokerProcess, client_id: str) -> list[dict[str, Any]]:
    return [row for row in rows(broker, "client_metrics") if row["clientId"] == client_id]


def advertised(wire: WireClient) -> set[int]:
    fields = {"client_software_name": "me", "client_software_version": "1"}
    return {each.api_key for each in ask(wire, ApiKey.API_VERSIONS, 4, fields).api_keys}


def test_t16_metrics_that_librdkafka_pushes_are_in_the_request_log(start: Start) -> None:
    broker = start(**ON, status_page_enable=True, metrics_per_client=True)
    with WireClient(broker.port) as wire:
        create_topic(wire, "pushed", 1)
        assert advertised(wire) >= {71, 72}
        subscribe(wire, metrics="*", interval_ms="100", match="client_software_name=confluent-.*")
    names = {"bootstrap.servers": broker.bootstrap, "enable.metrics.push": True}
    producer = Producer({**names, "client.id": "writer"})
    consumer = Consumer({**names, "client.id": "reader", "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["pushed"])

    def writes(producer: Producer = producer) -> bool:
        producer.produce("pushed", b"x")
        producer.flush(deadline_s())
        consumer.poll(0.05)
        return {row["clientId"] for row in rows(broker, "client_metrics")} == {"writer", "reader"}

    wait_until(writes, "metrics of both clients")

    def shown() -> bool:
        writes()
        instances = json.loads(page_text(broker, "/status.json")[1])["client_instances"]
        return {each["client_id"] for each in instances if each["metrics"]} == {"writer", "reader"}

    wait_until(shown, "both on the page")
    assert 'client_metric{instance="' in page_text(broker, "/metrics")[1]
    consumer.close()
    of_writer = pushed(broker, "writer")
    whose = {(row["user"], row["softwareName"], row["address"]) for row in of_writer}
    assert whose == {("ANONYMOUS", "confluent-kafka-python", "127.0.0.1")}
    assert {row["kind"] for row in of_writer} == {"gauge", "sum"}
    assert all(row["name"].startswith("org.apache.kafka.") for row in of_writer)
    assert {row["name"].split(".")[3] for row in of_writer} >= {"producer"}
    assert {row["name"].split(".")[3] for row in pushed(broker, "reader")} >= {"consumer"}
    assert len({row["clientInstanceId"] for row in of_writer}) == 1
