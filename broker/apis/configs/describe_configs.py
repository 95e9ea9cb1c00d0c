"""DescribeConfigs: every setting of topics, groups, client metrics and the broker, with source, synonyms and text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from rotunda.broker.apis.configs.config_entries import described
from rotunda.broker.apis.configs.config_rejections import rejection_of
from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.errors import ApiError
from rotunda.broker.ipc.request import Request
from rotunda.broker.metadata.configs.config_changes import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    HAVE_SETTINGS,
    TOPIC,
    check_broker_id,
)
from rotunda.broker.metadata.configs.config_descriptions import (
    ConfigEntry,
    describe_broker,
    describe_client_metrics,
    describe_cluster_default,
    describe_group,
    describe_loggers,
    describe_topic,
)
from rotunda.broker.metadata.store.metadata_file import EVERY_BROKER
from rotunda.broker.metadata.topics.topic_validation import check_topic_name
from rotunda.broker.protocol.error_codes import ErrorCode, text_of
from rotunda.broker.protocol.sliced_responses import Lazily
from rotunda.broker.scheduling.long_responses import TOO_LONG, TOO_LONG_MESSAGE, each_of
from rotunda.broker.scheduling.slices import Work
from rotunda.broker.steps import Steps


class _Asked(NamedTuple):
    """A requested resource and keys."""

    resource_type: int
    name: str
    keys: frozenset[str]


def handle_describe_configs(request: Request, broker: BrokerContext, body: Any) -> Work:
    """Return a result for each requested resource, once."""
    synonyms = body.include_synonyms
    documentation = body.include_documentation

    def describe(asked: _Asked) -> dict[str, Any]:
        # Empty as in Kafka, and not null.
        result = _result(asked, 0, "")
        if rejection := rejection_of(request, broker, asked.resource_type, asked.name):
            return _result(asked, rejection, text_of(rejection))
        try:
            entries = _entries(request, broker, asked.resource_type, asked.name)
            # An empty list of keys means all of them, as in Kafka.
            wanted = asked.keys or None
            result["configs"] = described(entries, wanted, synonyms=synonyms, documentation=documentation)
        except ApiError as error:
            return _result(asked, error.code, error.message or text_of(error.code))
        return result

    asked = yield from _distinct(body.resources)
    too_long = partial(_result, error_code=TOO_LONG, error_message=TOO_LONG_MESSAGE)
    return {"results": Lazily(asked, describe, too_long)}


def _distinct(resources: Iterable[Any]) -> Steps[list[_Asked]]:
    """Return each resource once, with all its requested keys; an empty set means every key."""
    keys: dict[tuple[int, str], set[str]] = {}
    whole: set[tuple[int, str]] = set()

    def add(resource: Any) -> None:
        place = resource.resource_type, resource.resource_name
        keys.setdefault(place, set()).update(resource.configuration_keys or ())
        if not resource.configuration_keys:
            whole.add(place)

    yield from each_of(resources, add)
    asked: list[_Asked] = []
    yield from each_of(
        keys.items(), lambda each: asked.append(_Asked(*each[0], frozenset(() if each[0] in whole else each[1])))
    )
    return asked


def _result(asked: _Asked, error_code: int, error_message: str) -> dict[str, Any]:
    return {
        "error_code": error_code,
        "error_message": error_message,
        "resource_type": asked.resource_type,
        "resource_name": asked.name,
        "configs": [],
    }


def _entries(request: Request, broker: BrokerContext, resource_type: int, name: str) -> Iterable[ConfigEntry]:
    source = _SOURCES.get(resource_type)
    if source is None:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Unsupported resource type: {resource_type}; {HAVE_SETTINGS}",
        )
    return source(request, broker, name)


def _of_topic(_request: Request, broker: BrokerContext, name: str) -> Iterable[ConfigEntry]:
    check_topic_name(name)
    metadata = broker.metadata
    topic = metadata.topic(name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return describe_topic(topic.configs, metadata.broker_config)


def _of_broker(_request: Request, broker: BrokerContext, name: str) -> Iterable[ConfigEntry]:
    config = broker.metadata.broker_config
    if name == EVERY_BROKER:
        return describe_cluster_default(config)
    try:
        broker_id = int(name)
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}") from None
    if broker_id != config.node_id:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {config.node_id} or empty string, but received {name}",
        )
    return describe_broker(config)


def _of_loggers(_request: Request, broker: BrokerContext, name: str) -> Iterable[ConfigEntry]:
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    check_broker_id(name, broker.metadata.broker_config.node_id)
    return describe_loggers(broker.metadata.log_levels)


def _of_group(_request: Request, broker: BrokerContext, name: str) -> Iterable[ConfigEntry]:
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
    metadata = broker.metadata
    return describe_group(metadata.group_configs(name), metadata.broker_config)


def _of_client_metrics(_request: Request, broker: BrokerContext, name: str) -> Iterable[ConfigEntry]:
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
    return describe_client_metrics(broker.metadata.client_metrics_configs.get(name, {}))


_SOURCES: Mapping[int, Callable[[Request, BrokerContext, str], Iterable[ConfigEntry]]] = {
    TOPIC: _of_topic,
    BROKER: _of_broker,
    BROKER_LOGGER: _of_loggers,
    CLIENT_METRICS: _of_client_metrics,
    GROUP: _of_group,
}
