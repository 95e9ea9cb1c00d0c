"""Totals by API from the metrics pages of the processors, and their growth as rows of the history.

Runs in the recorder, once a minute. Counts of histograms are kept by bucket without the empty ones, so that a total of
an idle broker stays small.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.request_log.columns import PERCENTILES, column_of_percentile
from rotunda.broker.request_log.history.largest import OTHERS, largest, total
from rotunda.shm.metrics.catalogue import PHASES
from rotunda.shm.metrics.histogram import bounds_of

if TYPE_CHECKING:
    from rotunda.shm.metrics.process_metrics import MetricsReader

_API_NAMES = {int(key): key.name for key in ApiKey}
_ERROR_NAMES = {int(code): code.name for code in ErrorCode}
_NS_PER_US = 1000

#: Counts by bucket of a histogram, the empty ones left out.
Buckets = dict[int, int]
#: (API, error code); empty for all those without a slot.
ErrorKey = tuple[int, ...]


class ApiTotals(NamedTuple):
    """Sums over all processors since the broker started. Durations are by API and phase."""

    durations: Mapping[tuple[int, str], Buckets]
    request_bytes: Mapping[int, int]
    errors: Mapping[ErrorKey, int]


def api_totals(pages: Iterable[MetricsReader]) -> ApiTotals:
    """Return the present totals of these processors."""
    durations: dict[tuple[int, str], Buckets] = defaultdict(dict)
    request_bytes: dict[int, int] = defaultdict(int)
    errors: dict[ErrorKey, int] = defaultdict(int)
    for page in pages:
        reading = page.read()
        for key, histogram in reading.phases.items():
            total = durations[key]
            for bucket, count in enumerate(histogram.counts):
                if count:
                    total[bucket] = total.get(bucket, 0) + count
        for (name, api, _), histogram in reading.histograms.items():
            if name == "request_bytes":
                request_bytes[api] += histogram.sum
        for error, count in reading.tables["request_errors"].items():
            errors[error] += count
    return ApiTotals(durations, request_bytes, errors)


def api_rows(before: ApiTotals, after: ApiTotals, response_bytes: Mapping[int, int]) -> Iterator[dict[str, Any]]:
    """Yield a row for each API with requests between two totals; the bytes of responses are by API."""
    errors = _failed(before, after)
    for api in sorted({api for api, _ in after.durations}):
        grown = {phase: _growth(before.durations, after.durations, (api, phase)) for phase in PHASES}
        requests = sum(grown["total"].values())
        if not requests:
            continue
        yield {
            "kind": "api",
            "name": OTHERS if api < 0 else _API_NAMES.get(api, str(api)),
            "requests": requests,
            "errors": sum(count for key, count in errors.items() if key[:1] == (api,)),
            "bytesOut": response_bytes.get(api),
            "bytesIn": after.request_bytes.get(api, 0) - before.request_bytes.get(api, 0),
            **{
                column_of_percentile(phase, name): quantile(grown[phase], fraction) // _NS_PER_US
                for phase in PHASES
                for name, fraction in PERCENTILES.items()
            },
        }


def error_rows(before: ApiTotals, after: ApiTotals) -> list[dict[str, Any]]:
    """Return a row for each error code of responses between two totals."""
    counts: dict[str, int] = defaultdict(int)
    for key, count in _failed(before, after).items():
        counts[_ERROR_NAMES.get(key[1], str(key[1]))] += count
    return largest(({"kind": "error", "name": name, "requests": n} for name, n in counts.items()), {"requests": total})


def _failed(before: ApiTotals, after: ApiTotals) -> dict[ErrorKey, int]:
    """Return the number of failed requests between two totals. Without a slot are rare codes, and their successes."""
    grown = {key: count - before.errors.get(key, 0) for key, count in after.errors.items() if key and key[1]}
    return {key: count for key, count in grown.items() if count > 0}


def quantile(counts: Buckets, fraction: float) -> int:
    """Return a value within 2 % of the one below which `fraction` of all values lie; 0 without values."""
    rank = -int(-fraction * sum(counts.values()) // 1)
    for bucket in sorted(counts):
        rank -= counts[bucket]
        if rank <= 0:
            low, high = bounds_of(bucket)
            return (low + high) // 2
    return 0


def _growth(
    before: Mapping[tuple[int, str], Buckets], after: Mapping[tuple[int, str], Buckets], key: tuple[int, str]
) -> Buckets:
    earlier = before.get(key, {})
    grown = {bucket: count - earlier.get(bucket, 0) for bucket, count in after.get(key, {}).items()}
    return {bucket: count for bucket, count in grown.items() if count > 0}
