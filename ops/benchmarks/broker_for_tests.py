"""Time and processor time that a broker for tests needs to start, reset and stop.

``python -m ops.benchmarks.broker_for_tests [TURNS]``: each turn starts one as the pytest plugin does, waits until all
its processes serve, resets it and stops it, each time with 10 topics of 3 partitions; and resets it when there is
nothing to delete. Times are wall-clock times that a test waits, so they include other load of the machine. Processor
time, of the broker's processes and the test's, is the upper bound on an idle machine.
"""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from ops.benchmarks.idle import cpu_ns
from rotunda.broker.errors import UsageError
from rotunda.broker.testing import RotundaBroker

TOPICS = 10
TURNS = 10


class Times:
    """Durations of calls by name, in milliseconds: wall-clock time and processor time."""

    def __init__(self) -> None:
        self._waited: dict[str, list[float]] = defaultdict(list)
        self._worked: dict[str, list[float]] = defaultdict(list)

    def take(self, name: str, broker: RotundaBroker, call: Callable[[], object]) -> None:
        """Make a call and record its times."""
        begin, worked = time.perf_counter(), processor_ms(broker)
        call()
        self._waited[name].append((time.perf_counter() - begin) * 1000)
        self._worked[name].append(processor_ms(broker) - worked)

    def lines(self) -> Iterator[str]:
        """Yield a line for each name."""
        for name, waited in self._waited.items():
            yield (
                f"{name:11}  median {statistics.median(waited):4.0f} ms, longest {max(waited):4.0f} ms, "
                f"processors {statistics.median(self._worked[name]):4.0f} ms"
            )


def main() -> None:
    """Print medians and the longest, in milliseconds."""
    times = Times()
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else TURNS):
        broker = RotundaBroker()
        times.take("start", broker, broker.start)
        create_topics(broker)
        # Processes that start after the others are ready once the request log has recorded the requests.
        broker.requests()
        times.take("reset", broker, broker.reset)
        times.take("empty reset", broker, broker.reset)
        create_topics(broker)
        times.take("end", broker, broker.stop)
    for line in times.lines():
        print(line)


def processor_ms(broker: RotundaBroker) -> float:
    """Return the processor time of this process, of the broker's, and of all that have ended, in milliseconds."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    own_s = time.process_time() + ended.ru_utime + ended.ru_stime
    try:
        return own_s * 1000 + cpu_ns(tuple(with_descendants(broker.pid))) / 1e6
    except UsageError:
        return own_s * 1000  # it does not run


def with_descendants(pid: int) -> Iterator[int]:
    """Yield a process, its children and theirs."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from with_descendants(int(child))


def create_topics(broker: RotundaBroker) -> None:
    """Create topics that the reset has to delete."""
    for number in range(TOPICS):
        broker.create_topic(f"topic-{number}", 3)


if __name__ == "__main__":
    main()
