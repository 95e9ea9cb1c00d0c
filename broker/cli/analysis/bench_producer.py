"""`rotunda bench --topic`: produces records with Rotunda's producer or others alternately, and prints rates and times.

Works against any Kafka broker. Every library has the same settings, by Kafka's names, with acks=all. At full speed only
one record in a hundred has a callback, since a callback costs as much as sending. To detect other failures, the final
record count of the topic is compared with the number sent: there must be no other writers.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from rotunda.broker.bench.producer_clients import NAMES, run_load
from rotunda.broker.bench.producer_load import Figures, Plan
from rotunda.broker.cli.cluster.cluster_client import connected
from rotunda.broker.cli.config import assignment
from rotunda.broker.client.admin import offsets, topics
from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.clock import SystemClock
from rotunda.broker.errors import ApiError, UsageError
from rotunda.broker.text_table import aligned, did_you_mean

_HEADERS = ("client", "turns", "records/s", "least", "most", "MB/s", "p50 ms", "p95 ms", "p99 ms", "p99.9 ms", "errors")
_MEGABYTE = 1 << 20


def run(parsed: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Run the load and return the exit code: 1 when records failed. Raises RotundaError."""
    names = _names(parsed.client)
    given = dict(assignment(text, "--producer-prop") for text in parsed.properties)
    with connected(parsed, environment) as client:
        if parsed.topic not in topics.partition_counts(client, [parsed.topic]):
            topics.create(client, parsed.topic, parsed.partitions, -1, {})
        host, port = client.endpoint
    settings = {"bootstrap.servers": f"{host}:{port}", "acks": "all", **given}
    plan = Plan(parsed.topic, parsed.num_records, parsed.record_size, parsed.throughput or 0)
    clock = SystemClock()
    # With fewer acks a record may be appended after its producer has ended.
    looks = settings["acks"] in {"all", "-1"} and plan.timed_one_in > 1
    found: dict[str, list[Figures]] = {name: [] for name in names}
    for turn in range(parsed.turns):
        # A different library first each time.
        for name in (*names[turn % len(names) :], *names[: turn % len(names)]):
            before = _standing(parsed, environment) if looks else None
            figures = run_load(name, settings, plan, clock, lambda figures: print(figures.line(), file=sys.stderr))
            after = _standing(parsed, environment) if before is not None else None
            if before is not None and after is not None:
                figures.stand(after - before)
            found[name].append(figures)
            if not parsed.json:
                print(f"{name}: {figures.line()}", flush=True)
    if parsed.json:
        print(json.dumps({name: [each.summary() for each in turns] for name, turns in found.items()}, indent=1))
    else:
        print()
        for line in aligned(_HEADERS, [_row(name, turns) for name, turns in found.items()]):
            print(line)
    failed = [f"{name}: {each.failure()}" for name, turns in found.items() for each in turns if each.errors]
    for line in failed:
        print(line, file=sys.stderr)
    return 1 if failed else 0


def _standing(parsed: argparse.Namespace, environment: Mapping[str, str]) -> int | None:
    """Return the number of records the topic has ever had; None if the broker does not lead all partitions."""
    with connected(parsed, environment) as client:
        count = topics.partition_counts(client, [parsed.topic])[parsed.topic]
        partitions = [TopicPartition(parsed.topic, each) for each in range(count)]
        try:
            return sum(each.end for each in offsets.bounds(client, partitions).values())
        except ApiError:
            return None


def _names(text: str) -> Sequence[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in NAMES:
            raise UsageError(f"--client {name} is not known{did_you_mean(name, NAMES)}: one of {', '.join(NAMES)}")
    return names


def _row(name: str, turns: Sequence[Figures]) -> tuple[Any, ...]:
    """Return the cells of a library: medians of its runs."""
    rates = [each.records_s for each in turns]
    summaries = [each.summary() for each in turns]
    times = [median(float(str(each[key])) for each in summaries) for key in ("p50_ms", "p95_ms", "p99_ms", "p99.9_ms")]
    megabytes = median(rates) * turns[0].plan.record_bytes / _MEGABYTE
    errors = sum(each.errors for each in turns)
    return name, len(turns), median(rates), min(rates), max(rates), megabytes, *times, errors
