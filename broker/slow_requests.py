"""Which requests count as slow: judged by processors, which always record them, and by the recorder, which says so.

Pure; works on rows of the request log as arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

#: Requests of these wait for others by design, which does not make them slow.
WAITING_APIS = (int(ApiKey.FETCH), int(ApiKey.JOIN_GROUP), int(ApiKey.SYNC_GROUP))


def is_slow(rows: NDArray[numpy.void], slow_ns: int) -> NDArray[numpy.bool_]:
    """Return which rows took as long as `slow_ns`, not counting how long a fetch or a rebalance waited for others."""
    import numpy as np  # noqa: PLC0415

    waited = np.where(
        np.isin(rows["api_key"], WAITING_APIS), rows["response_complete_ns"] - rows["local_complete_ns"], 0
    )
    slow: NDArray[numpy.bool_] = rows["end_ns"] - rows["received_ns"] - waited >= slow_ns
    return slow
