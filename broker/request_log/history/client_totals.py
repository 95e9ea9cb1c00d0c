"""Totals by client, and of responses by API, from the rows of a minute's requests.

Runs in the recorder. Rows are added up a few thousand at a time as arrays; a row stands for as many requests as its
weight says. Clients choose their names, so their number is bounded.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rotunda.broker.request_log.history.largest import OTHERS, largest, total
from rotunda.broker.request_log.names import distinct, names_of
from rotunda.broker.request_log.ring_reader import joined

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rotunda.broker.request_log.names import Clients

    Rows = NDArray[np.void]

#: Rows that are added up at once, and most client ids of a minute with totals of their own.
ROWS_AT_ONCE: Final = 8192
MOST_CLIENTS: Final = 1000

_COLUMNS: Final = ("requests", "errors", "bytesIn", "bytesOut")
_COMBINE: Final = dict.fromkeys(_COLUMNS, total)


class ClientTotals:
    """The totals of the present minute."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._rows: list[Rows] = []
        self._count = 0
        self._totals: dict[str, list[int]] = {}
        #: Bytes of responses by API.
        self._response_bytes: dict[int, int] = defaultdict(int)

    def add(self, rows: Rows) -> None:
        """Add rows, which must not change afterwards."""
        self._rows.append(rows)
        self._count += len(rows)
        if self._count >= ROWS_AT_ONCE:
            self.settle()

    def settle(self) -> None:
        """Add up all rows so far: the names of their clients are not needed any more."""
        if not self._rows:
            return
        rows = joined(self._rows)
        self._rows, self._count = [], 0
        weights = rows["weight"].astype(np.float64)
        numbers, codes = distinct(rows["client"])
        sums = [
            np.bincount(codes, values).tolist()
            for values in (
                weights,
                weights * (rows["error_code"] != 0),
                weights * rows["request_bytes"],
                weights * rows["response_bytes"],
            )
        ]
        for client, values in zip(names_of(self._clients, numbers), zip(*sums, strict=True), strict=True):
            known = self._of(client.client_id or "")
            for place, value in enumerate(values):
                known[place] += int(value)
        apis, codes = distinct(rows["api_key"])
        for api, value in zip(apis, np.bincount(codes, weights * rows["response_bytes"]).tolist(), strict=True):
            self._response_bytes[api] += int(value)

    def end_minute(self) -> tuple[list[dict[str, Any]], dict[int, int]]:
        """Return the rows of clients and the bytes of responses by API, and begin the next minute."""
        self.settle()
        rows = [
            {"kind": "client", "name": name, **dict(zip(_COLUMNS, values, strict=True))}
            for name, values in self._totals.items()
        ]
        response_bytes = dict(self._response_bytes)
        self._totals.clear()
        self._response_bytes.clear()
        return largest(rows, _COMBINE), response_bytes

    def _of(self, client_id: str) -> list[int]:
        if client_id not in self._totals and len(self._totals) >= MOST_CLIENTS:
            client_id = OTHERS
        return self._totals.setdefault(client_id, [0] * len(_COLUMNS))
