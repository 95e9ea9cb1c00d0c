"""Clients' use of their quotas, added up over the processes that serve them.

Pure, over `shm.tables.quota_tables`. Runs in the status page, for /metrics, and in the command line; sends no request
to any process. Clients may choose their ids, so lists of single clients have `MOST_LISTED` entries at most, without
clients that have been idle for as long as Kafka keeps inactive ones.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from rotunda.shm.tables.quota_rates import Windows, measure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rotunda.shm.tables.quota_tables import QuotaTables, QuotaUse

#: One percent of the time of a thread, as recorded, in ns.
_NS_PER_PERCENT: Final = 10_000_000
_TIME, _BUCKET = "request_percentage", "controller_mutation_rate"
#: The maximum number of listed entities; the others are only counted.
MOST_LISTED: Final = 1000
_FORGOTTEN_MS: Final = 3_600_000


class ClientUse(NamedTuple):
    """One entity's use of one quota; an empty ``user`` or ``client_id`` matches all.

    ``rate`` is in the unit of ``limit``, and None of a bucket of tokens. Throttle times are those returned so far;
    ``throttled_ms`` is the remaining time of the last one.
    """

    quota: str
    user: str
    client_id: str
    limit: float
    rate: float | None
    throttled: int
    throttle_ms: int
    throttled_ms: int


def clients_use(tables: QuotaTables, now_ms: int) -> list[ClientUse]:
    """Return the use of every entity: those throttled longest first, then those nearest to their limit (`E10`).

    ``now_ms`` is monotonic.
    """
    by_entity: defaultdict[int, list[QuotaUse]] = defaultdict(list)
    for use in tables.uses():
        by_entity[use.entity].append(use)
    windows = Windows(tables.windows, tables.window_ms)
    found = [
        _sum(uses, windows, now_ms)
        for uses in by_entity.values()
        if now_ms - max(each.used_ms for each in uses) < _FORGOTTEN_MS
    ]
    return sorted(found, key=_order)


def _order(use: ClientUse) -> tuple[float, float, float, str, str, str]:
    share = (use.rate or 0.0) / use.limit if use.limit else 0.0
    return -use.throttled_ms, -use.throttle_ms, -share, use.quota, use.user, use.client_id


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
