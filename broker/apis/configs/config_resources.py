"""ListConfigResources: the resources whose settings can be described (KIP-1142).

Version 0 is the older ListClientMetricsResources: it only lists subscriptions to client metrics (KIP-714).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.ipc.request import Request
from rotunda.broker.metadata.configs.config_changes import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.sliced_responses import Lazily
from rotunda.broker.scheduling.long_responses import at_length
from rotunda.broker.scheduling.slices import Work


def handle_list_config_resources(request: Request, broker: BrokerContext, body: Any) -> Work | dict[str, Any]:
    """Return the resources of the requested types, of all types by default; error 35 for an unknown type."""
    asked = dict.fromkeys(body.resource_types) if request.api_version > 0 else (CLIENT_METRICS,)
    types = list(asked) or list(_NAMES)
    if any(resource_type not in _NAMES for resource_type in types):
        return {"error_code": ErrorCode.UNSUPPORTED_VERSION, "config_resources": []}
    resources = [(name, resource_type) for resource_type in types for name in _NAMES[resource_type](request, broker)]
    listed = Lazily(resources, lambda each: {"resource_name": each[0], "resource_type": each[1]})
    return at_length({"error_code": 0, "config_resources": listed})


def _topics(_request: Request, broker: BrokerContext) -> Iterable[str]:
    return [topic.name for topic in broker.metadata.topics()]


def _broker(_request: Request, broker: BrokerContext) -> Iterable[str]:
    return [str(broker.metadata.broker_config.node_id)]


def _client_metrics(_request: Request, broker: BrokerContext) -> Iterable[str]:
    return sorted(broker.metadata.client_metrics_configs)


def _groups(_request: Request, broker: BrokerContext) -> Iterable[str]:
    return broker.metadata.configured_groups()


_NAMES: Mapping[int, Callable[[Request, BrokerContext], Iterable[str]]] = {
    TOPIC: _topics,
    BROKER: _broker,
    BROKER_LOGGER: _broker,
    CLIENT_METRICS: _client_metrics,
    GROUP: _groups,
}
