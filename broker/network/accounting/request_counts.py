"""The counts and times of completed requests on the metrics page, by API, version, error and client software.

Runs in processor processes, on a few thousand rows at a time by whole columns: the cost hardly grows with the number of
APIs. Rows of unsupported api keys are left out: clients choose them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rotunda.broker.protocol.api_keys import DEPRECATED_UP_TO, ApiKey
from rotunda.shm.metrics.catalogue import PHASES
from rotunda.shm.recorder_layout import RECORDER_TEXT, THROTTLED_BY, THROTTLED_BY_MASK

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    from rotunda.shm.metrics.metric_tables import TableWriter
    from rotunda.shm.metrics.process_metrics import MetricsWriter

    Rows = NDArray[numpy.void]

#: Separates the name of a client's software from its version in the texts of a metrics page.
SOFTWARE_SEPARATOR = "\n"

_SERVED = [int(key) for key in ApiKey]
_STAMPS = ("received_ns", "dequeued_ns", "local_complete_ns", "response_complete_ns", "taken_ns", "end_ns")
_NS_PER_MS = 1_000_000
#: Versions and error codes are numbers of this many bits.
_VALUE_BITS = 16
_VALUE_MASK = (1 << _VALUE_BITS) - 1


def record_requests(rows: Rows, texts: Mapping[int, bytes], page: MetricsWriter) -> None:
    """Count and time the rows (`D14`, `D17`, `D18`, `C17`); ``texts`` are client texts by number."""
    import numpy as np  # noqa: PLC0415 - loaded with the first rows

    is_served = np.isin(rows["api_key"], _SERVED)
    if not is_served.all():
        rows = rows[is_served]
    if not len(rows):
        return
    apis, throttle_ms = rows["api_key"].astype(np.int64), rows["throttle_ms"].astype(np.int64)
    slots = page.slots(apis)
    _record_phases(rows, slots, page)
    page.record_many(slots, "request_bytes", "", rows["request_bytes"].astype(np.int64))
    page.record_many(slots, "throttle_ns", "", throttle_ms * _NS_PER_MS)
    _count(page.table("request_errors"), apis, rows["error_code"])
    _count(page.table("requests"), apis, rows["api_version"])
    is_old = [(apis == api) & (rows["api_version"] <= newest) for api, newest in DEPRECATED_UP_TO.items()]
    if (is_deprecated := np.logical_or.reduce(is_old)).any():
        _record_deprecated(rows[is_deprecated], texts, page)
    if (throttled := throttle_ms > 0).any():
        quotas = rows["throttled_by"][throttled] & THROTTLED_BY_MASK
        _count_throttled(quotas.tolist(), throttle_ms[throttled].tolist(), page)


def _record_phases(rows: Rows, slots: NDArray[numpy.int64], page: MetricsWriter) -> None:
    """Record the durations. Negative ones count as 0 (`D14`)."""
    # In the order of PHASES: queue, local, remote, response queue and send are the gaps between neighbours; total, the
    # last, spans them all.
    stamps = [rows[name] for name in _STAMPS]
    for phase, began, ended in zip(PHASES, (*stamps[:-1], stamps[0]), (*stamps[1:], stamps[-1]), strict=True):
        page.record_many(slots, "phase_ns", phase, ended - began)


def _count_throttled(quotas: list[int], times_ms: list[int], page: MetricsWriter) -> None:
    """Count throttle times by quota; 0 means unknown."""
    for quota, throttle_ms in zip(quotas, times_ms, strict=True):
        if quota > 0:
            page.add(page.index("quota_throttled", THROTTLED_BY[quota - 1]), 1)
            page.add(page.index("quota_throttle_ns", THROTTLED_BY[quota - 1]), throttle_ms * _NS_PER_MS)


def record_connections(connections: Mapping[tuple[int, str, str], int], page: MetricsWriter) -> None:
    """Store the number of open connections by (listener, software, version)."""
    if not page.texts.has_room:
        _forget_texts(connections, page)
    values: dict[tuple[int, ...], int] = {}
    for (listener, software, version), count in connections.items():
        key = (listener, page.texts.index(software_text(software, version)))
        values[key] = values.get(key, 0) + count
    page.table("client_connections").replace(values)


def software_text(software: str, version: str) -> str:
    """Return the text for a client's software; empty if the client has not sent it."""
    if not software and not version:
        return ""
    return software.replace(SOFTWARE_SEPARATOR, " ") + SOFTWARE_SEPARATOR + version


def _forget_texts(connections: Mapping[tuple[int, str, str], int], page: MetricsWriter) -> None:
    """Make room for software names by deleting those without a connection or a counter."""
    used = {page.texts.find(software_text(software, version)) for _, software, version in connections}
    used.update(key[-1] for key in page.table("deprecated_requests").known())
    page.texts.keep(used)


def _count(table: TableWriter, apis: NDArray[numpy.int64], values: NDArray[numpy.int16]) -> None:
    """Add the number of occurrences of each value by API."""
    import numpy as np  # noqa: PLC0415

    keys, counts = np.unique(apis << _VALUE_BITS | values.astype(np.int64) & _VALUE_MASK, return_counts=True)
    columns = keys >> _VALUE_BITS, keys.astype(np.int16), counts
    for api, value, count in zip(*(column.tolist() for column in columns), strict=True):
        table.add((api, value), count)


def _record_deprecated(rows: Rows, texts: Mapping[int, bytes], page: MetricsWriter) -> None:
    table = page.table("deprecated_requests")
    for (client, api_key, api_version), count in Counter(rows[["client", "api_key", "api_version"]].tolist()).items():
        text = texts.get(client)
        names = json.loads(text[RECORDER_TEXT.size :].rstrip(b"\0")) if text is not None else ("",) * 4
        software = page.texts.index(software_text(names[2], names[3]))
        table.add((api_key, api_version, software), count)
