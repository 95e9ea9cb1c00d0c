"""GetTelemetrySubscriptions and PushTelemetry: the metrics that clients push (KIP-714)."""

from __future__ import annotations

from typing import Any

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.errors import InvalidReceive
from rotunda.broker.ipc.request import Request
from rotunda.broker.scheduling.slices import Work
from rotunda.broker.telemetry.receiver import TelemetryReceiver


def handle_get_telemetry_subscriptions(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any]:
    """Return the metrics that a client is to push, and the interval. Raises InvalidReceive without a receiver."""
    return _receiver(broker).subscription_of(request, body)


def handle_push_telemetry(request: Request, broker: BrokerContext, body: Any) -> Work:
    """Store pushed metrics. Raises InvalidReceive without a receiver."""
    return _receiver(broker).push(request, body)


def _receiver(broker: BrokerContext) -> TelemetryReceiver:
    if broker.telemetry is None:
        raise InvalidReceive("client metrics are not received: client.telemetry.receiver.enable is false")
    return broker.telemetry
