"""`rotunda metrics`: prints the content of /metrics, read from shared memory without a request to the broker."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

from rotunda.broker.cli.instance.status import run_path
from rotunda.broker.cli.metrics_reader import attached, reading_with_groups
from rotunda.broker.errors import BootFailed
from rotunda.broker.metrics.prometheus import render
from rotunda.broker.runtime import run_dir
from rotunda.shm.segment import SegmentError

_USAGE_EXIT_CODE = 2


def run(parsed: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Print every metric, or the notes on one; exit code 3 when no broker runs, 2 for an unknown metric."""
    if parsed.describe:
        return _describe(parsed.describe)
    path = run_path(parsed, environment)
    record = run_dir.read(path)
    try:
        if record is None or not record.is_alive:
            raise run_dir.not_running(path)
        reader = attached(record)
    except SegmentError as error:
        raise BootFailed(
            f"the broker with run directory {path} is stopping: {error}", run_dir.NOT_RUNNING_EXIT_CODE
        ) from None
    sys.stdout.write(render(reading_with_groups(reader), per_partition=parsed.per_partition))
    return 0


def _describe(name: str) -> int:
    from rotunda.broker.metrics.reference_page import describe_metric  # noqa: PLC0415

    text = describe_metric(name)
    if not text:
        raise BootFailed(f"unknown metric {name}; rotunda metrics prints all names", _USAGE_EXIT_CODE)
    sys.stdout.write(text)
    return 0
