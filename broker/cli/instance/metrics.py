"""`rotunda metrics`: prints the content of /metrics, read from shared memory without a request to the broker."""

from __future__ import annotations

import argparse
import select
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rotunda.broker.cli.instance.metrics_reader import attached
from rotunda.broker.cli.instance.status import run_path
from rotunda.broker.clock import SystemClock
from rotunda.broker.errors import BootFailed
from rotunda.broker.metrics.prometheus import render
from rotunda.broker.runtime import run_dir
from rotunda.shm.segment import SegmentError

if TYPE_CHECKING:
    from rotunda.broker.metrics.broker_reading import BrokerReading

_USAGE_EXIT_CODE = 2
_NOT_RUNNING_EXIT_CODE = 3

#: Time for handlers to publish their groups; they check twice a second whether a reader needs them.
WAIT_NS = 2_000_000_000
_LOOK_AGAIN_S = 0.05


def run(parsed: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Print every metric, or the notes on one; exit code 3 when no broker runs, 2 for an unknown metric."""
    if parsed.describe:
        return _describe(parsed.describe)
    path = run_path(parsed, environment)
    record = run_dir.read(path)
    try:
        if record is None or not record.is_alive:
            raise BootFailed(f"no broker runs with run directory {path}", _NOT_RUNNING_EXIT_CODE)
        reader = attached(record)
    except SegmentError as error:
        raise BootFailed(f"the broker with run directory {path} is stopping: {error}", _NOT_RUNNING_EXIT_CODE) from None
    deadline_ns = SystemClock.monotonic_ns() + WAIT_NS
    reader.wants.command_looks(deadline_ns)
    reading: BrokerReading = reader.read()
    while not reading.groups_known and SystemClock.monotonic_ns() < deadline_ns:
        select.select((), (), (), _LOOK_AGAIN_S)
        reading = reader.read()
    sys.stdout.write(render(reading, per_partition=parsed.per_partition))
    return 0


def _describe(name: str) -> int:
    from rotunda.broker.metrics.reference_page import describe_metric  # noqa: PLC0415

    text = describe_metric(name)
    if not text:
        raise BootFailed(f"unknown metric {name}; rotunda metrics prints all names", _USAGE_EXIT_CODE)
    sys.stdout.write(text)
    return 0
