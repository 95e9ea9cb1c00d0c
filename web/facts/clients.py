"""The clients of the page: processors' snapshots, the recorder's counts, and quota usage. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rotunda.broker.metrics.quota_use import MOST_LISTED
from rotunda.web.facts.requests import activity
from rotunda.web.facts.status import Call, Client, ClientInstance, ClientMetric, Quota

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rotunda.web.facts.readings import Reading
    from rotunda.web.sources import Sources


def clients_of(earlier: Reading | None, now: Reading, sources: Sources) -> list[Client]:
    """Return the open connections, as far as processors publish them."""
    known = activity(now.recent, sources) if now.recent is not None else {}
    before = {each["id"]: each for each in _connections(earlier)} if earlier is not None else {}
    return [_client(before.get(each["id"]), each, known.get(each["id"], {}), now) for each in _connections(now)]


def quotas_of(now: Reading) -> list[Quota]:
    """Return the quota usage of clients, the longest throttled first, up to the listed number."""
    return [
        Quota(
            quota=each.quota,
            user=each.user,
            client_id=each.client_id,
            limit=each.limit,
            per_s=each.rate,
            times_throttled=each.throttled,
            throttle_ms=each.throttle_ms,
            throttled_ms=each.throttled_ms,
        )
        for each in now.broker.quotas[:MOST_LISTED]
    ]


def left_out(snapshots: Mapping[int, dict[str, Any]], name: str) -> int:
    """Return the number of entries of a list that the snapshots leave out."""
    return sum(snapshot.get("left_out", {}).get(name, 0) for snapshot in snapshots.values())


def client_instances_of(now: Reading) -> list[ClientInstance]:
    """Return the clients that push metrics, as far as handlers publish them."""
    entries = [entry for snapshot in now.broker.snapshots.values() for entry in snapshot["client_metrics"]]
    return [_client_instance(entry) for entry in sorted(entries, key=lambda each: -each["pushed_ms"])]


def _client_instance(entry: dict[str, Any]) -> ClientInstance:
    metrics = [_client_metric(each) for each in entry["values"]]
    return ClientInstance(**{name: entry[name] for name in entry if name != "values"}, metrics=metrics)


def _client_metric(each: dict[str, Any]) -> ClientMetric:
    samples = max(1, each["samples"]) if each["kind"] == "histogram" else 1
    return ClientMetric(name=each["name"], attributes=each["attributes"], value=each["value"] / samples)


def _connections(reading: Reading) -> Iterable[dict[str, Any]]:
    """Yield the connections with the time of their counts, which is earlier than that of the reading."""
    for snapshot in reading.connections.values():
        yield from ({**each, "time_ns": snapshot["time_ns"]} for each in snapshot["connections"])


def _client(before: dict[str, Any] | None, each: dict[str, Any], known: dict[str, Any], now: Reading) -> Client:
    length_ns = each["time_ns"] - before["time_ns"] if before is not None else 0

    def rate(name: str) -> float | None:
        return max(0, each[name] - before[name]) * 1e9 / length_ns if before is not None and length_ns > 0 else None

    return Client(
        connection=each["id"],
        client_id=each["client_id"],
        software=each["software"],
        version=each["version"],
        address=each["peer"],
        listener=each["listener"],
        opened_ms=now.wall_time_ms(each["opened_ns"]),
        active_ms=now.wall_time_ms(each["active_ns"]),
        requests=each["requests"],
        errors=each["errors"],
        requests_per_s=rate("requests"),
        bytes_in_per_s=rate("request_bytes"),
        bytes_out_per_s=rate("response_bytes"),
        in_flight=each["in_flight"],
        muted=each["muted"],
        calls=[Call(**call) for call in known.get("calls", ())],
        topics=known.get("topics", []),
    )
