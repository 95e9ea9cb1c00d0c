"""The config APIs as tests of an `AdminCluster` call them, for every type of resource."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rotunda.broker.protocol.api_keys import ApiKey
from tests.support.admin_cluster import AdminCluster

SET, DELETE, APPEND, SUBTRACT = range(4)

#: (type, name)
Resource = tuple[int, str]
#: (setting, operation, value)
Change = tuple[str, int, str | None]


def alter_configs(
    cluster: AdminCluster,
    resource: Resource,
    changes: Sequence[Change],
    *,
    validate_only: bool = False,
    version: int = 1,
) -> tuple[int, str | None]:
    """Send IncrementalAlterConfigs and return the error code and message of its one resource."""
    configs = [{"name": key, "config_operation": how, "value": value} for key, how, value in changes]
    asked = {"resource_type": resource[0], "resource_name": resource[1], "configs": configs}
    fields = {"resources": [asked], "validate_only": validate_only}
    key = ApiKey.INCREMENTAL_ALTER_CONFIGS
    [outcome] = cluster.call(key, version, fields).responses
    return outcome.error_code, outcome.error_message


def describe_configs(
    cluster: AdminCluster, resource: Resource, keys: Any = None, version: int = 4, **flags: bool
) -> Any:
    """Send DescribeConfigs with the include options in ``flags``, and return the result of its one resource."""
    asked = {"resource_type": resource[0], "resource_name": resource[1], "configuration_keys": keys}
    fields = {"resources": [asked], "include_synonyms": False, "include_documentation": False, **flags}
    [result] = cluster.call(ApiKey.DESCRIBE_CONFIGS, version, fields).results
    return result


def described_configs(cluster: AdminCluster, resource: Resource) -> dict[str, tuple[str | None, int]]:
    """Return the value and the source of every setting that is described."""
    return {config.name: (config.value, config.config_source) for config in describe_configs(cluster, resource).configs}
