"""The options of `rotunda bench`: a profile is repeated, or records are produced."""

from __future__ import annotations

import argparse

from rotunda.broker.cli.options.common import json_option, run_dir_option
from rotunda.broker.cli.options.values import count, factor, interval_s


def add_bench(command: argparse.ArgumentParser) -> None:
    """Add the options of `rotunda bench`."""
    run_dir_option(command)
    json_option(command)
    command.add_argument("--bootstrap", metavar="HOST:PORT", help="the broker; by default the one of --run-dir")
    what = command.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--profile", metavar="FILE", help="replay this profile (a file or directory written by `rotunda report replay`)"
    )
    what.add_argument("--topic", metavar="NAME", help="a topic to produce to; created if missing")
    profile = command.add_argument_group("with --profile")
    profile.add_argument("--speed", type=factor, default=1.0, metavar="N", help="speed factor (default: 1)")
    profile.add_argument("--seconds", type=interval_s, metavar="N", help="only the first N seconds (default: all)")
    profile.add_argument(
        "--topic-prefix",
        default="bench-",
        metavar="TEXT",
        help="prefix of topic and group names (default: bench-)",
    )
    load = command.add_argument_group("with --topic, as in kafka-producer-perf-test")
    load.add_argument(
        "--num-records", type=count, default=1_000_000, metavar="N", help="number of records (default: 1000000)"
    )
    load.add_argument(
        "--record-size", type=count, default=100, metavar="BYTES", help="size of each value (default: 100)"
    )
    load.add_argument("--throughput", type=count, metavar="N", help="records a second (default: as many as possible)")
    load.add_argument(
        "--partitions", type=count, default=4, metavar="N", help="partitions of a created topic (default: 4)"
    )
    load.add_argument(
        "--producer-prop",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="properties",
        help="a producer setting by Kafka's name; repeatable",
    )
    load.add_argument(
        "--client",
        default="rotunda",
        metavar="NAMES",
        help="libraries to compare, comma-separated: rotunda, rotunda-asyncio, confluent-kafka, kafka-python, aiokafka "
        "(default: rotunda)",
    )
    load.add_argument("--turns", type=count, default=1, metavar="N", help="runs of each library (default: 1)")
