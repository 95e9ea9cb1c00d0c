"""What clients use of their quotas, added up over the processes that serve them, for whoever looks.

Pure, over `shm.quota_tables`. Runs in the status page and the command line; asks no process.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from shm.quota_rates import Windows, measure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shm.quota_tables import QuotaTables, QuotaUse

#: What is recorded for a percent of the time of a thread, in ns.
_NS_PER_PERCENT: Final = 10_000_000
_TIME, _BUCKET = "request_percentage", "controller_mutation_rate"


class ClientUse(NamedTuple):
    """One entity's use of one quota; an empty ``user`` or ``client_id`` stands for whoever it may be.

    ``rate`` is in the unit of ``limit``, and None of a bucket of tokens. Throttle times are those given so far;
    ``throttled_ms`` is how long the last one still lasts.
    """

    quota: str
    user: str
    client_id: str
    limit: float
    rate: float | None
    throttled: int
    throttle_ms: int
    throttled_ms: int


def clients_use(tables: QuotaTables, now_ms: int, window_ms: int = 1000) -> list[ClientUse]:
    """Return what every entity uses, those that are throttled longest first. ``now_ms`` is monotonic."""
    by_entity: defaultdict[int, list[QuotaUse]] = defaultdict(list)
    for use in tables.uses():
        by_entity[use.entity].append(use)
    windows = Windows(tables.windows, window_ms)
    found = [_sum(uses, windows, now_ms) for uses in by_entity.values()]
    return sorted(
        found, key=lambda each: (-each.throttled_ms, -each.throttle_ms, each.quota, each.user, each.client_id)
    )


def _sum(uses: Iterable[QuotaUse], windows: Windows, now_ms: int) -> ClientUse:
    parts = sorted(uses, key=lambda each: each.used_ms)
    latest = parts[-1]
    rate = None
    if latest.quota != _BUCKET:
        flat = [[word for sample in each.samples for word in sample] for each in parts]
        total, elapsed_ms = measure(flat, windows, now_ms)
        rate = total * 1000 / elapsed_ms / (_NS_PER_PERCENT if latest.quota == _TIME else 1)
    return ClientUse(
        latest.quota,
        latest.user,
        latest.client_id,
        latest.limit / 1000,
        rate,
        sum(each.throttled for each in parts),
        sum(each.throttle_ms for each in parts),
        max(0, max(each.throttled_until_ms for each in parts) - now_ms),
    )
