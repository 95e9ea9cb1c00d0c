"""The options of `rotunda mirror-config`."""

from __future__ import annotations

import argparse
from pathlib import Path

from rotunda.broker.cli.options.common import client_options, run_dir_option
from rotunda.broker.cli.options.values import count


def add_mirror_config(command: argparse.ArgumentParser) -> None:
    """Add the options of `rotunda mirror-config`."""
    run_dir_option(command)
    client_options(command)
    command.add_argument("--to", required=True, metavar="HOST:PORT", help="the Apache Kafka")
    command.add_argument(
        "--to-config", type=Path, metavar="FILE", help="client properties of the Apache Kafka, as for a Java client"
    )
    command.add_argument(
        "--topics", default=".*", metavar="REGEX", help="topics to copy, comma-separated (default: all)"
    )
    command.add_argument(
        "--groups", default=".*", metavar="REGEX", help="groups to copy, comma-separated (default: all)"
    )
    command.add_argument("--tasks", type=count, default=2, metavar="N", help="number of copying tasks (default: 2)")
