"""The client instances of a handler for the status page and /metrics, with their latest values. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rotunda.broker.ipc import connection_id

if TYPE_CHECKING:
    from rotunda.broker.telemetry.instances import Instance, Instances

#: Most values in one snapshot; instances beyond it are only counted.
MOST_VALUES: Final = 2000


class InstancesStatus(NamedTuple):
    """The entries of a snapshot, and the number of instances without one."""

    entries: list[dict[str, Any]]
    left_out: int


def describe_instances(instances: Instances) -> InstancesStatus:
    """Return the instances that have pushed, the latest first, as far as their values fit."""
    entries: list[dict[str, Any]] = []
    values = left_out = 0
    for instance in reversed(list(instances)):
        if not len(instance.series):
            continue
        values += len(instance.series)
        if values > MOST_VALUES:
            left_out += 1
        else:
            entries.append(_entry(instance))
    return InstancesStatus(entries, left_out)


def _entry(instance: Instance) -> dict[str, Any]:
    client = instance.client
    return {
        "instance": client.client_instance_id,
        "connection": connection_id.text(instance.connection_id),
        "client_id": client.client_id,
        "user": instance.user,
        "software": client.client_software_name,
        "version": client.client_software_version,
        "address": client.client_source_address,
        "pushed_ms": instance.pushed_wall_ms,
        "values": [
            {
                "name": name,
                "attributes": dict(attributes),
                "kind": value.kind,
                "value": value.value,
                "samples": value.samples,
            }
            for name, attributes, value in instance.series
        ],
    }
