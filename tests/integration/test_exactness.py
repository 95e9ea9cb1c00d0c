"""Handlers die by SIGKILL, again and again, under load: no record lost, none twice, no connection dropped.

The load is that of producers without idempotence, which could not repair a lost or doubled record or a connection.
"""

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import wait_until
from tests.support.wire_client import WireClient
from tests.support.wire_messages import create_topic, read_partition
from tests.support.writers import Writer, assert_exact

BROKER_SETTINGS = {"process.restart.limit": 1_000_000, "log.retention.ms": -1}  # the records have old timestamps
PARTITIONS = 5
KILLING_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 0.4


class Killer:
    """Kills handlers at moments of chance, often while a replacement is still starting."""

    def __init__(self, broker: BrokerProcess, chance: random.Random):
        self.broker, self.chance = broker, chance
        self.victims = [row["pid"] for row in broker.processes("handler")]
        self.kills = 0

    def run(self, seconds: float) -> None:
        """Kill one or two at a time until the time is over; at the end all of them live."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(self.chance.random() ** 2 * LONGEST_PAUSE_SECONDS)
            count = self.chance.randint(1, min(2, len(self.victims)))
            self._kill(self.chance.sample(range(len(self.victims)), count))

    def _kill(self, indexes: list[int]) -> None:
        before = self.broker.child_pids()
        for index in indexes:
            os.kill(self.victims[index], signal.SIGKILL)
            self.kills += 1
        wait_until(lambda: len(self.broker.child_pids() - before) >= len(indexes), "the killed processes replaced")
        replaced = sorted(self.broker.child_pids() - before)
        for index, pid in zip(indexes, replaced, strict=True):
            self.victims[index] = pid


def under_fire(broker: BrokerProcess, chance: random.Random, *work: Callable[[threading.Event], object]) -> None:
    """Run all tasks in threads while handlers are killed; raise their exceptions again."""
    stop = threading.Event()
    before = restarts(broker)
    killer = Killer(broker, chance)
    with ThreadPoolExecutor(len(work)) as pool:
        running: list[Future[object]] = [pool.submit(one, stop) for one in work]
        try:
            killer.run(KILLING_SECONDS)
        finally:
            stop.set()
        for future in running:
            future.result()
    print(f"{killer.kills} kills")
    wait_until(lambda: restarts(broker) - before >= killer.kills, "every restart counted")
    assert restarts(broker) - before == killer.kills


def restarts(broker: BrokerProcess) -> int:
    return sum(row["restarts"] for row in broker.processes("handler"))


def check_every_partition(broker: BrokerProcess, topic: str, writers: list[Writer]) -> None:
    with WireClient(broker.port) as client:
        for partition in range(PARTITIONS):
            concerned = [writer for writer in writers if partition in writer.partitions]
            assert_exact(read_partition(client, topic, partition), partition, concerned)
    print(f"{sum(writer.sent for writer in writers)} requests")


def test_plain_producers(broker, wire, topic, chance) -> None:
    """One request in flight and several; for one owner and for several; large ones, in segments of a few records."""
    create_topic(wire, topic, PARTITIONS, {"segment.bytes": 1 << 20})
    orders = [chance.sample(range(PARTITIONS), PARTITIONS) for _ in range(3)]
    writers = [
        *(Writer(f"plain{n}", topic, [n]) for n in range(PARTITIONS)),
        *(Writer(f"span{n}", topic, order) for n, order in enumerate(orders)),
        *(Writer(f"deep{n}", topic, [n], depth=16) for n in range(2)),
        *(Writer(f"wide{n}", topic, [4, 3, n], depth=8) for n in range(2)),
        *(Writer(f"large{n}", topic, [n, n + 1], depth=2, padding_bytes=100_000, pace_s=0.02) for n in range(2)),
    ]
    under_fire(broker, chance, *[lambda stop, w=w: w.run(broker.port, stop) for w in writers])
    check_every_partition(broker, topic, writers)
