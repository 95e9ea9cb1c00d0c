"""The phases of finished requests, gathered row by row and turned into histograms a few thousand at a time.

Runs in processor processes. A request is finished when the last byte of its answer is written (``D21``); appending its
stamps to a flat array is all that happens then.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from broker.protocol.api_keys import ApiKey
from shm.metrics_catalogue import PHASES

if TYPE_CHECKING:
    from broker.network.channel import Answered
    from shm.metrics import MetricsWriter

#: Rows gathered before they are worked up.
BATCH_ROWS = 4096

_SERVED = frozenset(int(key) for key in ApiKey)


class FinishedRequests:
    """Rows of (api key, received, dequeued, local complete, response complete, response dequeued, end)."""

    def __init__(self) -> None:
        self._rows = array("q")
        #: All that have ever been taken in.
        self.count = 0

    def __len__(self) -> int:
        return len(self._rows) // 7

    def add(self, answered: list[Answered], end_ns: int) -> None:
        """Take in requests whose answers have just been written, and empty the list of them."""
        extend = self._rows.extend
        for (_, _, received, dequeued, local, complete, _, _, api_key, _, _, _, _), taken in answered:
            extend((api_key, received, dequeued, local, complete, taken, end_ns))
        self.count += len(answered)
        answered.clear()

    def flush(self, metrics: MetricsWriter) -> None:
        """Add the gathered rows to the histograms. Negative durations count as 0 (``D14``).

        Rows of api keys that are not served are left out: clients choose them, and the page has room for few keys.
        """
        if not self._rows:
            return
        import numpy as np  # noqa: PLC0415 - not needed before the first requests are finished

        rows = np.frombuffer(self._rows, dtype=np.int64).reshape(-1, 7)
        keys = rows[:, 0]
        # In the order of PHASES: queue, local, remote, response queue and send are the gaps between neighbours; total,
        # the last, spans them all.
        durations = np.maximum(np.diff(rows[:, 1:], axis=1), 0)
        total = np.maximum(rows[:, 6] - rows[:, 1], 0)
        for key in np.unique(keys):
            if int(key) not in _SERVED:
                continue
            chosen = keys == key
            for index, phase in enumerate(PHASES[:-1]):
                metrics.record_phase(int(key), phase, durations[chosen, index])
            metrics.record_phase(int(key), PHASES[-1], total[chosen])
        del rows, keys, durations, total
        self._rows = array("q")
