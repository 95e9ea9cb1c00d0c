"""Slow requests: the rule by which processors always record them, and the recorder marks them.

Pure; runs in processors and the recorder, on rows of the request log as arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rotunda.broker.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

#: Requests of these APIs wait for others by design, which does not make them slow.
WAITING_APIS = (int(ApiKey.FETCH), int(ApiKey.JOIN_GROUP), int(ApiKey.SYNC_GROUP))


def durations_ns(rows: NDArray[numpy.void]) -> NDArray[numpy.int64]:
    """Return the durations of requests, without the time that a fetch or a rebalance waited for others."""
    duration_ns: NDArray[numpy.int64] = rows["end_ns"] - rows["received_ns"]
    keys = rows["api_key"]
    waiting = keys == WAITING_APIS[0]
    for key in WAITING_APIS[1:]:
        waiting |= keys == key
    if waiting.any():
        duration_ns -= (rows["response_complete_ns"] - rows["local_complete_ns"]) * waiting
    return duration_ns


def select(rows: NDArray[numpy.void], chosen: NDArray[numpy.bool_] | NDArray[numpy.int64]) -> NDArray[numpy.void]:
    """Return a copy of some rows, by mask or by index. As plain bytes: field by field needs ten times as long."""
    found: NDArray[numpy.void] = rows.view(f"V{rows.itemsize}")[chosen].view(rows.dtype)
    return found


def is_slow(rows: NDArray[numpy.void], slow_ns: int) -> NDArray[numpy.bool_]:
    """Return which rows lasted at least `slow_ns`."""
    slow: NDArray[numpy.bool_] = durations_ns(rows) >= slow_ns
    return slow
