"""Changes settings of a running broker as an administrator does."""

import selectors
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from rotunda.broker.protocol.api_keys import ApiKey
from tests.support.deadline import deadline_s
from tests.support.described_requests import receive_answer, send_request
from tests.support.wire_client import WireClient


def set_configs(admin: AdminClient, kind: ResourceType, name: str, configs: Mapping[str, object]) -> None:
    """Set configs of a resource; delete those with the value None. Raises KafkaException when they are rejected."""
    entries = [
        ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE)
        if value is None
        else ConfigEntry(key, str(value), incremental_operation=AlterConfigOpType.SET)
        for key, value in configs.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(deadline_s())


def set_on_broker(bootstrap: str, name: str, value: str, broker_id: str = "1") -> None:
    """Set a config for one broker, or without an id for all. Raises KafkaException when it is rejected."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    set_configs(admin, ResourceType.BROKER, broker_id, {name: value})


def alter_broker(admin: AdminClient, name: str, value: str | None) -> None:
    """Set, or with None delete, a setting of the broker."""
    set_configs(admin, ResourceType.BROKER, "1", {name: value})


def set_over_wire(port: int, name: str, value: str) -> None:
    """Set a config for one broker with a single request, which needs only a processor and the controller."""
    with WireClient(port) as wire:
        set_over_first([wire], name, value)


def set_over_first(wires: Sequence[WireClient], name: str, value: str) -> None:
    """Send such a request on each connection, and await the first response: some processors may be stopped."""
    configs: list[dict[str, Any]] = [{"name": name, "config_operation": 0, "value": value}]
    resources = [{"resource_type": 4, "resource_name": "1", "configs": configs}]
    for wire in wires:
        send_request(wire, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": resources})
    with selectors.DefaultSelector() as selector:
        for wire in wires:
            selector.register(wire.socket, selectors.EVENT_READ, wire)
        ready = selector.select(deadline_s())
    assert ready, "no answer"
    [outcome] = receive_answer(ready[0][0].data, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1).responses
    assert outcome.error_code == 0, outcome.error_message
