"""The minutes of the history: when one ends, its aggregates become rows.

Runs in the recorder. Aggregates are the growth of published counters between two samples, so requests cost nothing
more; a minute without requests has no rows. Knows nothing of how rows become files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rotunda.broker.request_log.api_totals import ApiTotals, api_rows, api_totals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rotunda.shm.metrics.process_metrics import MetricsReader

MINUTE_US: Final = 60_000_000
_PROCESSOR: Final = "processor"

Row = dict[str, Any]


class HistorySources(NamedTuple):
    """The inputs: metrics pages by role and index."""

    pages: dict[tuple[str, int], MetricsReader]


class _Sample(NamedTuple):
    """Totals at one time."""

    requests: int
    apis: ApiTotals


class History:
    """The present minute."""

    def __init__(self, sources: HistorySources, now_us: int) -> None:
        self._processors = [page for (role, _), page in sources.pages.items() if role == _PROCESSOR]
        self._minute = now_us // MINUTE_US
        self._before = self._sample()
        self._has_requests = False

    @property
    def is_under_way(self) -> bool:
        """Whether the present minute has requests."""
        return self._has_requests

    def notice(self) -> bool:
        """Return whether requests have arrived since the last minute with rows."""
        self._has_requests = self._has_requests or self._requests() != self._before.requests
        return self._has_requests

    def run_once(self, now_us: int, *, is_last: bool = False) -> list[Row]:
        """Return the rows of a minute that has ended, or with `is_last` of the present one so far."""
        minute = now_us // MINUTE_US
        rows: list[Row] = []
        if self.notice() and (minute != self._minute or is_last):
            after = self._sample()
            rows = [{"time": self._minute * MINUTE_US, **row} for row in self._rows(self._before, after)]
            self._before = after
            self._has_requests = False
        self._minute = minute
        return rows

    def due_us(self) -> int | None:
        """Return when the next minute with rows ends, None without requests."""
        return (self._minute + 1) * MINUTE_US if self._has_requests else None

    def _rows(self, before: _Sample, after: _Sample) -> Iterator[Row]:
        yield from api_rows(before.apis, after.apis)

    def _sample(self) -> _Sample:
        # Requests first: those that arrive meanwhile are noticed afterwards.
        return _Sample(self._requests(), api_totals(self._processors))

    def _requests(self) -> int:
        return sum(page.values()["requests_received", ""] for page in self._processors)
