"""`rotunda bench`: sends the load of a profile to a broker, and prints the results next to the profile's.

Works against any Kafka broker that needs no authentication. Creates the topics that it needs, under its own names.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from rotunda.broker.bench.profile import partitions_needed, read
from rotunda.broker.bench.requests import BenchTopic, RequestMaker
from rotunda.broker.bench.tally import HEADERS, Tallies, quantile_ms
from rotunda.broker.cli.cluster.cluster_client import connected
from rotunda.broker.client.admin import topics
from rotunda.broker.client.network.blocking_client import BlockingClient
from rotunda.broker.clock import SystemClock
from rotunda.broker.errors import RotundaError
from rotunda.broker.protocol.primitives import ZERO_TOPIC_ID
from rotunda.broker.text_table import aligned, counted, printable

_US = 1_000_000
_LONGEST_NAME = 249


def run(parsed: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Run a profile, or produce, and return the exit code: 1 when connections or records were lost.

    Raises RotundaError.
    """
    if parsed.topic is not None:
        from rotunda.broker.cli.analysis import bench_producer  # noqa: PLC0415 - the other half of the command

        return bench_producer.run(parsed, environment)
    from rotunda.broker.bench.load import Load  # noqa: PLC0415 - costs 200 ms to import, which complaints need not wait for

    events = read(Path(parsed.profile))
    if parsed.seconds is not None:
        events = [event for event in events if event.atUs < parsed.seconds * parsed.speed * _US]
    if not events:
        raise RotundaError(f"{parsed.profile} has no requests in its first {parsed.seconds:g} seconds")
    clock = SystemClock()
    with connected(parsed, environment) as client:
        made = {name: _topic(client, parsed.topic_prefix, name, n) for name, n in partitions_needed(events).items()}
        ranges = client.ranges
        address = client.endpoint
    maker = RequestMaker(made, parsed.topic_prefix, parsed.speed, clock)
    tallies = Tallies(events)
    duration_s = asyncio.run(Load(address, maker, ranges, clock, parsed.speed).run(events, tallies))
    profile_s = max(event.atUs for event in events) / _US
    summary = _summary(tallies, profile_s, duration_s)
    if parsed.json:
        print(json.dumps(summary, indent=1))
    else:
        _print(summary, tallies, profile_s, duration_s)
    return 1 if tallies.lost_connections else 0


def _topic(client: BlockingClient, prefix: str, name: str, partitions: int) -> BenchTopic:
    """Return the topic for one of the profile, created if it does not exist."""
    bench_name = f"{prefix}{name}"[:_LONGEST_NAME]
    if bench_name not in topics.partition_counts(client, [bench_name]):
        topics.create(client, bench_name, partitions, -1, {})
    found = topics.describe(client, bench_name)
    if len(found.partitions) < partitions:
        has = counted(len(found.partitions), "partition")
        message = f"topic {printable(bench_name)} has {has} and the profile needs {partitions}"
        raise RotundaError(f"{message}; name another --topic-prefix")
    return BenchTopic(
        bench_name, UUID(found.topic_id).bytes if found.topic_id else ZERO_TOPIC_ID, len(found.partitions)
    )


def _summary(tallies: Tallies, profile_s: float, duration_s: float) -> dict[str, Any]:
    return {
        "profile_seconds": profile_s,
        "took_seconds": duration_s,
        "connections": tallies.connections,
        "lost_connections": tallies.lost_connections,
        "late_p50_ms": quantile_ms(tallies.late_us, 0.5),
        "late_p99_ms": quantile_ms(tallies.late_us, 0.99),
        "apis": [
            dict(zip(HEADERS, tally.row(profile_s or 1.0, duration_s), strict=True)) for tally in tallies.ordered()
        ],
    }  # fmt: skip


def _print(summary: dict[str, Any], tallies: Tallies, profile_s: float, duration_s: float) -> None:
    for line in aligned(HEADERS, [tally.row(profile_s or 1.0, duration_s) for tally in tallies.ordered()]):
        print(line)
    late = summary["late_p99_ms"]
    print(
        f"\n{counted(tallies.total('in_profile'), 'request')} in {profile_s:.1f} s of the profile; "
        f"{counted(tallies.total('received'), 'response')} in {duration_s:.1f} s over "
        f"{counted(tallies.connections, 'connection')}, {tallies.total('errors')} with an error, "
        f"{tallies.total('left_out')} left out"
    )
    if late is not None:
        print(f"sent late by {summary['late_p50_ms']:.1f} ms in the median, {late:.1f} ms at p99")
    if tallies.lost_connections:
        print(f"failed or closed by the broker: {counted(tallies.lost_connections, 'connection')}")
