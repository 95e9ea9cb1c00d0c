"""The last requests as text: rows of `shm.tables.recent_requests`, names, phases, clients' activity. Pure."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from rotunda.shm.recorder_layout import NOT_REPORTED, REQUEST_ROW

if TYPE_CHECKING:
    from rotunda.broker.metrics.broker_reading import Names
    from rotunda.shm.tables.recent_requests import Recent
    from rotunda.web.sources import Sources

#: Newest requests that a page shows.
TAIL_ROWS = 100

_FIELDS = tuple(field.name for field in REQUEST_ROW.fields)
_STAMPS = ("received_ns", "dequeued_ns", "local_complete_ns", "response_complete_ns", "taken_ns", "end_ns")
_CLIENT = (
    *("connection", "client_id", "software_name", "software_version", "address", "listener", "protocol", "principal"),
)


def tail(recent: Recent, names: Names, most: int = TAIL_ROWS) -> list[dict[str, Any]]:
    """Return the newest requests, newest first."""
    return _rows(recent.newest[-most * REQUEST_ROW.size :], recent, names)[::-1]


def slowest(recent: Recent, names: Names) -> list[dict[str, Any]]:
    """Return the slowest requests of the last minutes, slowest first."""
    return _rows(recent.slowest, recent, names)


def _rows(packed: bytes, recent: Recent, names: Names) -> list[dict[str, Any]]:
    return [
        _row(dict(zip(_FIELDS, values, strict=True)), recent, names)
        for values in REQUEST_ROW.struct.iter_unpack(packed)
    ]


def _row(row: dict[str, int], recent: Recent, names: Names) -> dict[str, Any]:
    stamps = [row[name] for name in _STAMPS]
    for index in range(1, len(stamps)):
        stamps[index] = max(stamps[index], stamps[index - 1])
    topic, partition = recent.names.get("subjects", {}).get(str(row["partition_row"]), (None, None))
    client = dict(zip(_CLIENT, recent.names.get("clients", {}).get(str(row["client"]), ()), strict=False))
    return {
        "id": f"{row['client']}-{row['correlation_id']}-{row['received_ns']}",
        "time_us": (row["received_ns"] - recent.epoch_ns) // 1000,
        "api": names.apis.get(row["api_key"], str(row["api_key"])),
        "version": row["api_version"],
        "client_id": client.get("client_id"),
        "software": " ".join(filter(None, (client.get("software_name"), client.get("software_version")))) or None,
        "address": client.get("address"),
        "connection": client.get("connection"),
        "user": (client.get("principal") or "").removeprefix("User:") or None,
        "topic": topic,
        "partition": partition if topic is not None else None,
        "partitions": row["partition_count"],
        "records": row["record_count"] if row["record_count"] >= 0 else None,
        "request_bytes": row["request_bytes"],
        "response_bytes": row["response_bytes"],
        "error": names.errors.get(row["error_code"], str(row["error_code"])) if row["error_code"] else None,
        "acks": row["acks"] if row["acks"] != NOT_REPORTED else None,
        "handler": row["handler"],
        "weight": row["weight"],
        #: queue, local, remote, response queue, send
        "phases_us": [(after - before) / 1000 for before, after in pairwise(stamps)],
        "total_us": (stamps[-1] - stamps[0]) / 1000,
    }


def activity(recent: Recent, sources: Sources) -> dict[str, dict[str, Any]]:
    """Return, by connection, its calls by API and version, as `web.facts.status.Call` has them, and its topics."""
    found = {}
    for each in recent.names.get("connections", ()):
        calls = [
            {
                "api": sources.reader.names.apis.get(key, str(key)),
                "version": version,
                "count": count,
                "deprecated": version <= sources.deprecated_up_to.get(key, -1),
            }
            for key, version, count in sorted(each["calls"], key=lambda call: -call[2])
        ]
        found[each["names"][0]] = {"calls": calls, "topics": each["topics"]}
    return found
