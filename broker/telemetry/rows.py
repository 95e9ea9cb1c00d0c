"""The rows of pushed metrics for the request log. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rotunda.broker.telemetry.instances import Instance
    from rotunda.broker.telemetry.otlp import DataPoint


def metric_rows(instance: Instance, points: Sequence[DataPoint], wall_ms: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of points that an instance pushed at a time, without the handler."""
    client, time_us = instance.client, wall_ms * 1000
    fixed = {
        "clientInstanceId": client.client_instance_id,
        "clientId": client.client_id,
        "user": instance.user,
        "softwareName": client.client_software_name,
        "softwareVersion": client.client_software_version,
        "address": client.client_source_address,
    }
    for point in points:
        yield {
            "time": time_us,
            "valueTime": point.time_ns // 1000,
            **fixed,
            "name": point.name,
            "attributes": json.dumps(dict(point.attributes)),
            "kind": point.kind,
            "isDelta": point.is_delta,
            "value": point.value,
            "count": point.samples,
        }
