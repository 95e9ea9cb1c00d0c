"""Subscriptions to the metrics that clients push (KIP-714)."""

from rotunda.broker.protocol.api_keys import ApiKey
from tests.support.described_requests import ask
from tests.support.wire_client import WireClient

SUBSCRIBE, RESOURCE = 0, 16


def subscribe(wire: WireClient, **configs: str) -> None:
    """Create a subscription, as kafka-client-metrics does."""
    changes = [
        {"name": name.replace("_", "."), "config_operation": SUBSCRIBE, "value": value}
        for name, value in configs.items()
    ]
    resource = {"resource_type": RESOURCE, "resource_name": "all", "configs": changes}
    response = ask(wire, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
    assert [each.error_code for each in response.responses] == [0]
