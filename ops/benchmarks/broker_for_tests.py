"""How long a broker for tests takes to start, to be reset and to end.

``python -m ops.benchmarks.broker_for_tests [TURNS]``: each turn starts one as the pytest plugin does, waits until all
its processes serve, resets it and stops it, each time with 10 topics of 3 partitions. Times are those that a test
waits; on a machine with other work on it they say more about that work.
"""

from __future__ import annotations

import statistics
import sys
import time

from broker.testing import RotundaBroker

TOPICS = 10
TURNS = 10


def main() -> None:
    """Print medians and the longest, in milliseconds."""
    starts, resets, stops = [], [], []
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else TURNS):
        begin = time.perf_counter()
        broker = RotundaBroker().start()
        starts.append(time.perf_counter() - begin)
        create_topics(broker)
        # Those that start behind the others are ready once it has recorded what it was asked for.
        broker.requests()
        begin = time.perf_counter()
        broker.reset()
        resets.append(time.perf_counter() - begin)
        create_topics(broker)
        begin = time.perf_counter()
        broker.stop()
        stops.append(time.perf_counter() - begin)
    for name, times in (("start", starts), ("reset", resets), ("end", stops)):
        print(f"{name:5}  median {statistics.median(times) * 1000:.0f} ms, longest {max(times) * 1000:.0f} ms")


def create_topics(broker: RotundaBroker) -> None:
    """Make topics, which have to go again."""
    for number in range(TOPICS):
        broker.create_topic(f"topic-{number}", 3)


if __name__ == "__main__":
    main()
