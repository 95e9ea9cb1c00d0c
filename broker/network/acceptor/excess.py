"""How many connections each processor is to close when there are more than the broker may have (`A17`, `A18`).

Pure. The acceptor alone decides, because it alone counts: the whole excess is divided among the processors before any
of them closes one. The most burdened close first, so that they end up with about as many each; which of its connections
a processor closes is its own choice (`broker.network.processor.lowest_priority`).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping


def shares(excess: int, closable: Mapping[int, int]) -> dict[int, int]:
    """Return by processor how many to close, of ``excess`` in all; ``closable`` is how many each has."""
    found: dict[int, int] = {}
    heap = [(-count, number) for number, count in closable.items() if count]
    heapq.heapify(heap)
    for _ in range(min(excess, sum(closable.values()))):
        count, number = heapq.heappop(heap)
        found[number] = found.get(number, 0) + 1
        if count + 1:
            heapq.heappush(heap, (count + 1, number))
    return found
