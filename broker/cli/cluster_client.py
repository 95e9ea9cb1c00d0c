"""The part that commands share which are clients of a running broker: finding it, and explaining what it refuses."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from broker.cli.config import check_address
from broker.client.connection import Connection, name_of
from broker.errors import ApiError, BootFailed, RotundaError
from broker.protocol.error_codes import text_of
from broker.runtime import run_dir
from broker.text_table import printable

_NOT_RUNNING_EXIT_CODE = 3


@contextmanager
def connected(parsed: argparse.Namespace, environment: Mapping[str, str]) -> Iterator[Connection]:
    """Yield a connection to the broker that is meant; an ApiError inside becomes one with Kafka's name for it.

    Raises UsageError for a bad address, and BootFailed with exit code 3 when no broker runs.
    """
    with Connection(_address(parsed, environment)) as connection:
        try:
            yield connection
        except ApiError as error:
            text = printable(error.message or text_of(error.code))
            raise RotundaError(f"{name_of(error.code)}: {text}") from error


def _address(parsed: argparse.Namespace, environment: Mapping[str, str]) -> str:
    takes_addresses = "bootstrap" in parsed
    if takes_addresses and parsed.bootstrap:
        for each in str(parsed.bootstrap).split(","):
            check_address(each, "--bootstrap")
        return str(parsed.bootstrap)
    path = parsed.run_dir or run_dir.default_path(environment)
    record = run_dir.read(path)
    if record is None or not record.is_alive:
        run_dir.check_readable(Path(path))
        instead = "; or use --bootstrap" if takes_addresses else ""
        raise BootFailed(f"no broker runs with run directory {path}{instead}", _NOT_RUNNING_EXIT_CODE)
    return record.control_plane or record.bootstrap
