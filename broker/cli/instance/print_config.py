"""`rotunda print-config`: prints every setting with its value and origin.

For the broker that would start with these flags or, with --run-dir, for the one running there.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping

from rotunda.broker.cli.cluster.cluster_client import connected
from rotunda.broker.cli.config import configuration
from rotunda.broker.client.admin import settings
from rotunda.broker.config.broker_config import BROKER_KEYS
from rotunda.broker.config.listener_overrides import split
from rotunda.broker.errors import UsageError
from rotunda.broker.text_table import printable


def run(parsed: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Print every setting. Raises ConfigError, UsageError, and BootFailed with exit code 3 when no broker runs."""
    rows = _running(parsed, environment) if parsed.run_dir else list(configuration(parsed, environment).described())
    if parsed.json:
        print(json.dumps([{"name": name, "value": value, "origin": origin} for name, value, origin in rows], indent=1))
        return 0
    for name, value, origin in rows:
        print(f"{name}={printable(value)}  # {printable(origin)}")
    return 0


def _running(parsed: argparse.Namespace, environment: Mapping[str, str]) -> list[tuple[str, str, str]]:
    if parsed.config or parsed.sets or parsed.data_dir or parsed.listen or parsed.advertise or parsed.ephemeral:
        raise UsageError("--run-dir prints a running broker's settings: it excludes other settings")
    with connected(parsed, environment) as connection:
        described = settings.describe(connection)
    # The broker also describes settings that only Kafka has.
    return [(each.name, each.value, each.origin) for each in described if each.name in BROKER_KEYS or split(each.name)]
