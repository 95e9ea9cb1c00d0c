"""A metrics page between processes: counters only grow, whenever its writer is killed.

Allowed of every counter: a value that was stored. Not allowed: less than before, negative, or a key, text or histogram
that was never written.
"""

from __future__ import annotations

import os

import numpy as np

from rotunda.shm.metrics.process_metrics import MetricsReader, MetricsSegment, MetricsWriter
from rotunda.shm.segment import Segment
from rotunda.shm.tables.process_slots import PROCESSOR
from tests.litmus.two_processes import repeat_until_hit, run_together, run_with_deaths, seeded, segment_of

BATCH = np.array([10, 1_000, 1_000_000, 5_000_000_000], dtype=np.int64)
MOST_KEYS = 40
ROUNDS = 3000


def pages_of(segment: Segment) -> MetricsSegment:
    return MetricsSegment(segment.view, 1, 1)


def count_up_to(segment: Segment, last: int) -> None:
    """Count everything that a page has, starting from a predecessor's values."""
    writer = MetricsWriter(pages_of(segment).page(PROCESSOR, 0))
    received = writer.index("requests_received")
    requests, connections = writer.table("requests"), writer.table("client_connections")
    while writer.words[received] < last:
        number = writer.words[received]
        writer.add(received, 1)
        requests.add((number % MOST_KEYS, 3), 1)
        connections.replace({(0, writer.texts.index(f"software\n{number % MOST_KEYS}")): 1})
        slots = writer.slots(np.full(len(BATCH), number % 35))
        for phase in ("queue", "total"):
            writer.record_many(slots, "phase_ns", phase, BATCH)
        writer.record_many(slots, "request_bytes", "", BATCH)


def read_up_to(segment: Segment, last: int) -> None:
    reader = MetricsReader(pages_of(segment).page(PROCESSOR, 0).toreadonly())
    buckets = {int(value) for value in BATCH}
    seen: dict[object, int] = {}
    while True:
        page = reader.read()
        now: dict[object, int] = {"requests": page.values["requests_received", ""], **page.tables["requests"]}
        for key, histogram in page.histograms.items():
            now[key, "sum"] = histogram.sum
            now |= {(key, bucket): count for bucket, count in enumerate(histogram.counts) if count}
            assert histogram.max in {0, *buckets}
            assert len([count for count in histogram.counts if count]) <= len(BATCH)
        for key, value in now.items():
            assert value >= seen.get(key, 0), key
        seen = now
        assert set(page.tables["requests"]) <= {(number, 3) for number in range(MOST_KEYS)}
        assert set(page.texts.values()) <= {f"software\n{number}" for number in range(MOST_KEYS)}
        assert all(0 <= value <= 1 for value in page.tables["client_connections"].values())
        if now["requests"] >= last:
            return
        os.sched_yield()


def test_counters_only_grow() -> None:
    with segment_of(MetricsSegment.bytes_needed(1, 1)) as segment:
        pages_of(segment).initialise()
        run_together(lambda: count_up_to(segment, ROUNDS), lambda: read_up_to(segment, ROUNDS))


def test_also_when_their_writer_is_killed_and_replaced() -> None:
    chance = seeded()

    def run() -> int:
        with segment_of(MetricsSegment.bytes_needed(1, 1)) as segment:
            pages_of(segment).initialise()
            bodies = [lambda: count_up_to(segment, 3 * ROUNDS), lambda: read_up_to(segment, 3 * ROUNDS)]
            return run_with_deaths(bodies, [0], 20, chance)

    repeat_until_hit(run)
