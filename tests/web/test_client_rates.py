"""Rates of clients: counts of a processor's snapshots, over the time between these and not between readings."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from rotunda.web.facts.clients import clients_of

S = 1_000_000_000


def reading(time_ns: int, snapshot_ns: int, requests: int) -> Any:
    connection = {
        "id": "0-1-1", "client_id": "app", "software": "", "version": "", "peer": "127.0.0.1", "listener": "PLAINTEXT",
        "opened_ns": 0, "active_ns": 0, "requests": requests, "request_bytes": 0, "response_bytes": 0, "errors": 0,
        "in_flight": 0, "muted": [],
    }  # fmt: skip
    connections = {0: {"connections": [connection], "time_ns": snapshot_ns}}
    return SimpleNamespace(
        time_ns=time_ns, recent=None, connections=connections, wall_time_ms=lambda monotonic_ns: monotonic_ns // 10**6
    )


@pytest.mark.parametrize(
    ("before", "after", "rate"),
    [
        # The first reading has a snapshot of seconds ago.
        (reading(10 * S, 4 * S, 400), reading(11 * S, 11 * S, 1100), 100),
        (reading(10 * S, 10 * S, 1000), reading(11 * S, 10 * S, 1000), None),
        (None, reading(11 * S, 11 * S, 1100), None),
    ],
)
def test_a_rate_is_over_the_time_between_snapshots(before: Any, after: Any, rate: float | None) -> None:
    [client] = clients_of(before, after, cast("Any", SimpleNamespace()))
    assert client.requests_per_s == rate
