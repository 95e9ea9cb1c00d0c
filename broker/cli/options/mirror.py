"""The options of `rotunda mirror-config`."""

from __future__ import annotations

import argparse
from pathlib import Path

from broker.cli.options.common import client_options, run_dir_option
from broker.cli.options.values import count


def add_mirror_config(command: argparse.ArgumentParser) -> None:
    """Add the options of `rotunda mirror-config`."""
    run_dir_option(command)
    client_options(command)
    command.add_argument("--to", required=True, metavar="HOST:PORT", help="the Apache Kafka")
    command.add_argument(
        "--to-config", type=Path, metavar="FILE", help="properties with which a Java client gets in there"
    )
    command.add_argument(
        "--topics", default=".*", metavar="REGEX", help="which topics, separated by commas (default: all)"
    )
    command.add_argument(
        "--groups", default=".*", metavar="REGEX", help="which groups, separated by commas (default: all)"
    )
    command.add_argument("--tasks", type=count, default=2, metavar="N", help="how many copy at a time (default: 2)")
