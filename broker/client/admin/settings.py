"""Settings of a broker, topic, group or logger, as requests on a client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from rotunda.broker.client.network.blocking_client import check
from rotunda.broker.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from rotunda.broker.client.network.blocking_client import BlockingClient

TOPIC, BROKER, LOGGERS, GROUP = 2, 4, 8, 32

_METADATA_VERSION = 12
_CONFIGS_VERSION = 4
_ALTER_CONFIGS_VERSION = 1
_SET, _DELETE = 0, 1

#: Labels of DescribeConfigs' config sources; the same as those of a configuration's origins.
_ORIGINS = {
    1: "set on the topic",
    2: "set while running",
    3: "set while running, cluster-wide",
    4: "set when it was started",
    5: "default",
    6: "current level",
    8: "set on the group",
}
_CLUSTER_WIDE = 3
#: Config sources of admin changes, by resource type.
_SET_BY_ADMIN = {TOPIC: {1}, BROKER: {2, _CLUSTER_WIDE}, LOGGERS: {6}, GROUP: {8}}
_HIDDEN = "(hidden)"


class Setting(NamedTuple):
    """An effective setting and the source of its value.

    `others` are its overridden values, each with its name and source.
    """

    name: str
    value: str
    origin: str
    is_set: bool = False
    is_fixed: bool = False
    others: tuple[tuple[str, str, str], ...] = ()
    text: str = ""


class Resource(NamedTuple):
    """A resource, as identified by the config APIs."""

    resource_type: int
    name: str


def describe(client: BlockingClient) -> list[Setting]:
    """Return all settings of the connected broker, by name. Raises ApiError."""
    return describe_resource(client, this_broker(client))


def this_broker(client: BlockingClient) -> Resource:
    found = client.request(ApiKey.METADATA, {"topics": [], "allow_auto_topic_creation": False}, _METADATA_VERSION)
    return Resource(BROKER, str(int(found.brokers[0].node_id)))


def describe_resource(client: BlockingClient, resource: Resource) -> list[Setting]:
    """Return all settings of a resource, by name. Raises ApiError."""
    asked = {**_named(resource), "configuration_keys": None}
    fields = {"resources": [asked], "include_synonyms": True, "include_documentation": True}
    result = client.request(ApiKey.DESCRIBE_CONFIGS, fields, _CONFIGS_VERSION).results[0]
    check(result)
    return sorted(
        Setting(
            str(each.name),
            _HIDDEN if each.is_sensitive else str(each.value or ""),
            "the cluster's own" if _is_of_cluster(each) else _origin(each.config_source),
            is_set=int(each.config_source) in _SET_BY_ADMIN[resource.resource_type] and not _is_of_cluster(each),
            is_fixed=bool(each.read_only),
            others=tuple(
                (str(other.name), _HIDDEN if each.is_sensitive else str(other.value or ""), _origin(other.source))
                for other in each.synonyms[1:]
            ),
            text=str(getattr(each, "documentation", None) or ""),
        )
        for each in result.configs
    )


def _is_of_cluster(config: Any) -> bool:
    """Return whether a setting has the value that a cluster stores itself when it is created (KIP-966)."""
    if str(config.name) != "min.insync.replicas" or int(config.config_source) != _CLUSTER_WIDE:
        return False
    others = [str(other.value) for other in config.synonyms[1:]]
    return str(config.value) == (others[0] if others else "1")


def alter(
    client: BlockingClient, resource: Resource, changes: Mapping[str, str | None], *, validate_only: bool = False
) -> None:
    """Set settings of a resource, and delete those with the value None; all or nothing. Raises ApiError.

    With `validate_only` the broker only validates the change.
    """
    configs = [
        {"name": key, "config_operation": _DELETE if value is None else _SET, "value": value}
        for key, value in changes.items()
    ]
    fields = {"resources": [{**_named(resource), "configs": configs}], "validate_only": validate_only}
    check(client.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, fields, _ALTER_CONFIGS_VERSION).responses[0])


def _named(resource: Resource) -> dict[str, int | str]:
    return {"resource_type": resource.resource_type, "resource_name": resource.name}


def _origin(source: int) -> str:
    return _ORIGINS.get(int(source), f"source {int(source)}")
