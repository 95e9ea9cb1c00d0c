"""The settings of a running broker, as a request on a connection. Values in, values out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.client.connection import check
from broker.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from broker.client.connection import Connection

_METADATA_VERSION = 12
_CONFIGS_VERSION = 4
_BROKER_RESOURCE = 4

#: DescribeConfigs' source of a value, in the words of a configuration's own origins.
_ORIGINS = {
    2: "set while running",
    3: "set while running, cluster-wide",
    4: "set when it was started",
    5: "default",
}
_HIDDEN = "(hidden)"


class Setting(NamedTuple):
    """A setting in force, and where its value came from."""

    name: str
    value: str
    origin: str


def describe(connection: Connection) -> list[Setting]:
    """Return every setting of the broker that the connection leads to, by name. Raises ApiError."""
    version = connection.highest_version(ApiKey.METADATA, _METADATA_VERSION)
    found = connection.request(ApiKey.METADATA, version, {"topics": [], "allow_auto_topic_creation": False})
    node_id = int(found.brokers[0].node_id)
    version = connection.highest_version(ApiKey.DESCRIBE_CONFIGS, _CONFIGS_VERSION)
    resource = {"resource_type": _BROKER_RESOURCE, "resource_name": str(node_id), "configuration_keys": None}
    result = connection.request(ApiKey.DESCRIBE_CONFIGS, version, {"resources": [resource]}).results[0]
    check(result)
    return sorted(
        Setting(
            str(each.name),
            _HIDDEN if each.is_sensitive else str(each.value or ""),
            _ORIGINS.get(int(each.config_source), f"source {int(each.config_source)}"),
        )
        for each in result.configs
    )
