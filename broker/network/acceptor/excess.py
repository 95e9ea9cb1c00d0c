"""The number of connections each processor must close when the broker has too many (`A17`, `A18`).

Pure. Only the acceptor decides, because only it counts all: the whole excess is divided among the processors before any
of them closes one. The processors with the most connections close first, so that they end with about as many each; each
processor chooses the connections to close (`broker.network.processor.lowest_priority`).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping


def shares(excess: int, closable: Mapping[int, int]) -> dict[int, int]:
    """Return the number to close by processor, ``excess`` in all; ``closable`` is the number each has."""
    found: dict[int, int] = {}
    heap = [(-count, number) for number, count in closable.items() if count]
    heapq.heapify(heap)
    for _ in range(min(excess, sum(closable.values()))):
        count, number = heapq.heappop(heap)
        found[number] = found.get(number, 0) + 1
        if count + 1:
            heapq.heappush(heap, (count + 1, number))
    return found
