"""What finished requests add to the metrics page, by API, version, error and client software.

Runs in processor processes, a few thousand rows at a time. Rows of api keys that are not served are left out: clients
choose them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from broker.protocol.api_keys import DEPRECATED_UP_TO, ApiKey
from shm.recorder_layout import RECORDER_TEXT

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    from shm.metrics import MetricsWriter

    Rows = NDArray[numpy.void]

#: Stands between the name of a client's software and its version in the texts of a metrics page.
SOFTWARE_SEPARATOR = "\n"

_SERVED = frozenset(int(key) for key in ApiKey)
_NS_PER_MS = 1_000_000
_KEY_BITS = 16


def record_requests(rows: Rows, texts: Mapping[int, bytes], page: MetricsWriter) -> None:
    """Count the rows (`D17`, `D18`, `C17`); ``texts`` are what clients have said of themselves, by number."""
    import numpy as np  # noqa: PLC0415 - loaded with the first rows

    apis = rows["api_key"].astype(np.int64)
    requests, errors = page.table("requests"), page.table("request_errors")
    for second, table in ((rows["api_version"], requests), (rows["error_code"], errors)):
        pairs, counts = np.unique(apis << _KEY_BITS | second.astype(np.int64) & 0xFFFF, return_counts=True)
        for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
            if pair >> _KEY_BITS in _SERVED:
                table.add((pair >> _KEY_BITS, _signed(pair)), count)
    for api in np.unique(apis).tolist():
        if api not in _SERVED:
            continue
        chosen = rows[apis == api]
        page.record_many(page.histogram("request_bytes", api), chosen["request_bytes"].astype(np.int64))
        throttle_ns = chosen["throttle_ms"].astype(np.int64) * _NS_PER_MS
        page.record_many(page.histogram("throttle_ns", api), throttle_ns)
        if api in DEPRECATED_UP_TO:
            _record_deprecated(chosen[chosen["api_version"] <= DEPRECATED_UP_TO[api]], texts, page)


def record_connections(connections: Mapping[tuple[int, str, str], int], page: MetricsWriter) -> None:
    """Store how many connections are open by (listener, software, version)."""
    values: dict[tuple[int, ...], int] = {}
    for (listener, software, version), count in connections.items():
        key = (listener, page.texts.index(software_text(software, version)))
        values[key] = values.get(key, 0) + count
    page.table("client_connections").replace(values)


def software_text(software: str, version: str) -> str:
    """Return what stands for a client's software; empty if it has not said."""
    if not software and not version:
        return ""
    return software.replace(SOFTWARE_SEPARATOR, " ") + SOFTWARE_SEPARATOR + version


def _record_deprecated(rows: Rows, texts: Mapping[int, bytes], page: MetricsWriter) -> None:
    table = page.table("deprecated_requests")
    for row in rows:
        text = texts.get(int(row["client"]))
        names = json.loads(text[RECORDER_TEXT.size :].rstrip(b"\0")) if text is not None else ("",) * 4
        software = page.texts.index(software_text(names[2], names[3]))
        table.add((int(row["api_key"]), int(row["api_version"]), software), 1)


def _signed(pair: int) -> int:
    low = pair & (1 << _KEY_BITS) - 1
    return low - (low >> (_KEY_BITS - 1) << _KEY_BITS)
