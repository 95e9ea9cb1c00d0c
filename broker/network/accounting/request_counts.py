"""The counts of finished requests on the metrics page, by API, version, error and client software.

Runs in processor processes, a few thousand rows at a time. Rows of api keys that are not served are left out: clients
choose them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from broker.protocol.api_keys import DEPRECATED_UP_TO, ApiKey
from shm.recorder_layout import RECORDER_TEXT, THROTTLED_BY, THROTTLED_BY_MASK

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    from shm.metrics.metric_tables import TableWriter
    from shm.metrics.process_metrics import MetricsWriter

    Rows = NDArray[numpy.void]

#: Stands between the name of a client's software and its version in the texts of a metrics page.
SOFTWARE_SEPARATOR = "\n"

_SERVED = frozenset(int(key) for key in ApiKey)
_NS_PER_MS = 1_000_000
_MOST_APIS = 128


def record_requests(rows: Rows, texts: Mapping[int, bytes], page: MetricsWriter) -> None:
    """Count the rows (`D17`, `D18`, `C17`); ``texts`` are clients' texts, by number."""
    import numpy as np  # noqa: PLC0415 - loaded with the first rows

    apis = rows["api_key"].astype(np.int64)
    counts = np.bincount(np.where((apis >= 0) & (apis < _MOST_APIS), apis, _MOST_APIS))
    served = [api for api in np.flatnonzero(counts).tolist() if api in _SERVED]
    requests, errors = page.table("requests"), page.table("request_errors")
    sizes, throttle_ms = rows["request_bytes"].astype(np.int64), rows["throttle_ms"].astype(np.int64)
    for api in served:
        chosen = slice(None) if counts[api] == len(rows) else np.flatnonzero(apis == api)
        versions = rows["api_version"][chosen]
        _count(requests, api, versions)
        _count(errors, api, rows["error_code"][chosen])
        _record(page, page.histogram("request_bytes", api), sizes[chosen])
        _record(page, page.histogram("throttle_ns", api), throttle_ms[chosen] * _NS_PER_MS)
        if api in DEPRECATED_UP_TO and (versions <= DEPRECATED_UP_TO[api]).any():
            _record_deprecated(rows[chosen][versions <= DEPRECATED_UP_TO[api]], texts, page)
    if (throttled := throttle_ms > 0).any():
        quotas = rows["throttled_by"][throttled] & THROTTLED_BY_MASK
        _count_throttled(quotas.tolist(), throttle_ms[throttled].tolist(), page)


def _count_throttled(quotas: list[int], times_ms: list[int], page: MetricsWriter) -> None:
    """Count throttle times by what gave them; 0 says that nobody knows."""
    for quota, throttle_ms in zip(quotas, times_ms, strict=True):
        if quota > 0:
            page.add(page.index("quota_throttled", THROTTLED_BY[quota - 1]), 1)
            page.add(page.index("quota_throttle_ns", THROTTLED_BY[quota - 1]), throttle_ms * _NS_PER_MS)


def record_connections(connections: Mapping[tuple[int, str, str], int], page: MetricsWriter) -> None:
    """Store how many connections are open by (listener, software, version)."""
    if not page.texts.has_room:
        _forget_texts(connections, page)
    values: dict[tuple[int, ...], int] = {}
    for (listener, software, version), count in connections.items():
        key = (listener, page.texts.index(software_text(software, version)))
        values[key] = values.get(key, 0) + count
    page.table("client_connections").replace(values)


def software_text(software: str, version: str) -> str:
    """Return what stands for a client's software; empty if it has not named it."""
    if not software and not version:
        return ""
    return software.replace(SOFTWARE_SEPARATOR, " ") + SOFTWARE_SEPARATOR + version


def _forget_texts(connections: Mapping[tuple[int, str, str], int], page: MetricsWriter) -> None:
    """Make room for names of software by those that no connection has and no counter."""
    used = {page.texts.find(software_text(software, version)) for _, software, version in connections}
    used.update(key[-1] for key in page.table("deprecated_requests").known())
    page.texts.keep(used)


def _count(table: TableWriter, api: int, values: NDArray[numpy.int16]) -> None:
    """Add how often each value occurs; most often there is but one."""
    import numpy as np  # noqa: PLC0415

    first = int(values[0])
    if (values == first).all():
        table.add((api, first), len(values))
        return
    for value, count in zip(*(each.tolist() for each in np.unique(values, return_counts=True)), strict=True):
        table.add((api, value), count)


def _record(page: MetricsWriter, histogram: int, values: NDArray[numpy.int64]) -> None:
    first = int(values[0])
    if first >= 0 and (values == first).all():
        page.record_same(histogram, first, len(values))
    else:
        page.record_many(histogram, values)


def _record_deprecated(rows: Rows, texts: Mapping[int, bytes], page: MetricsWriter) -> None:
    table = page.table("deprecated_requests")
    for (client, api_key, api_version), count in Counter(rows[["client", "api_key", "api_version"]].tolist()).items():
        text = texts.get(client)
        names = json.loads(text[RECORDER_TEXT.size :].rstrip(b"\0")) if text is not None else ("",) * 4
        software = page.texts.index(software_text(names[2], names[3]))
        table.add((api_key, api_version, software), count)
