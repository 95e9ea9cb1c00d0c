"""The part that commands share which are clients of a running broker: finding it, and explaining what it refuses."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from broker.cli.config import assignment, check_address
from broker.cli.process_list import hide
from broker.client.access import PLAIN_TEXT, SECRETS, Access, access_of, read_properties
from broker.client.connection import Connection, ConnectionEnded, name_of
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
    ours = access(parsed, environment)
    try:
        with Connection(address(parsed, environment, ours), access=ours) as connection:
            yield connection
    except ConnectionEnded as failure:
        if ours is not PLAIN_TEXT:
            raise
        hint = "a secured broker takes --command-config FILE; `rotunda doctor` says what it is to have"
        raise RotundaError(f"{failure}; {hint}") from failure
    except ApiError as error:
        text = printable(error.message or text_of(error.code))
        raise RotundaError(f"{name_of(error.code)}: {text}") from error


def access(parsed: argparse.Namespace, environment: Mapping[str, str]) -> Access:
    """Return how the client gets in: by --command-config, or the file that the environment names, and --property.

    Raises UsageError.
    """
    hide(SECRETS.__contains__)
    file = getattr(parsed, "command_config", None) or environment.get("ROTUNDA_COMMAND_CONFIG")
    properties = read_properties(Path(file)) if file else {}
    properties |= dict(assignment(text, "--property") for text in getattr(parsed, "properties", ()))
    return access_of(properties) if properties else PLAIN_TEXT


def address(parsed: argparse.Namespace, environment: Mapping[str, str], ours: Access = PLAIN_TEXT) -> str:
    """Return the broker that is meant: of --bootstrap, of --run-dir, of the client's properties, or the one here.

    Raises UsageError for a bad address, and BootFailed with exit code 3 when no broker runs.
    """
    takes_addresses = "bootstrap" in parsed
    given = (takes_addresses and parsed.bootstrap) or ("" if parsed.run_dir else ours.bootstrap)
    if given:
        for each in str(given).split(","):
            check_address(each.strip(), "--bootstrap" if takes_addresses and parsed.bootstrap else "bootstrap.servers")
        return str(given)
    path = parsed.run_dir or run_dir.default_path(environment)
    record = run_dir.read(path)
    if record is None or not record.is_alive:
        run_dir.check_readable(Path(path))
        instead = "; or use --bootstrap" if takes_addresses else ""
        raise BootFailed(f"no broker runs with run directory {path}{instead}", _NOT_RUNNING_EXIT_CODE)
    return record.control_plane or record.bootstrap
