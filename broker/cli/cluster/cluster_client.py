"""Shared by commands that are clients of a running broker: finds the broker, and explains its errors."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rotunda.broker.cli.config import assignment, check_address
from rotunda.broker.cli.process_list import hide
from rotunda.broker.client.access import PLAIN_TEXT, SECRETS, Access, access_of, is_of_access, read_properties
from rotunda.broker.client.network.blocking_client import BlockingClient, ConnectionEnded
from rotunda.broker.errors import ApiError, RotundaError
from rotunda.broker.protocol.error_codes import name_of, text_of
from rotunda.broker.runtime import run_dir
from rotunda.broker.text_table import printable

if TYPE_CHECKING:
    from rotunda.broker.runtime.run_dir import RunRecord


@contextmanager
def connected(parsed: argparse.Namespace, environment: Mapping[str, str]) -> Iterator[BlockingClient]:
    """Yield a connection to the selected broker; an ApiError inside is raised with Kafka's name for it.

    Raises UsageError for an invalid address, and BootFailed with exit code 3 when no broker runs.
    """
    ours = access(parsed, environment)
    with explained(ours), BlockingClient(address(parsed, environment, ours), access=ours) as client:
        yield client


@contextmanager
def explained(ours: Access) -> Iterator[None]:
    """Raise an ApiError inside with Kafka's name for it, and add likely causes to a broken connection."""
    try:
        yield
    except ConnectionEnded as failure:
        if ours is not PLAIN_TEXT:
            raise
        hint = "a secured broker needs --command-config FILE; `rotunda doctor` checks it"
        raise RotundaError(f"{failure}; {hint}") from failure
    except ApiError as error:
        text = printable(error.message or text_of(error.code))
        raise RotundaError(f"{name_of(error.code)}: {text}") from error


def access(parsed: argparse.Namespace, environment: Mapping[str, str]) -> Access:
    """Return the client's access settings: from --command-config, or the environment's file, and --property.

    Raises UsageError.
    """
    hide(SECRETS.__contains__)
    # The exceptions contain the messages that a client's log would print to standard error, and they are printed.
    logging.getLogger("rotunda.broker.client").addHandler(logging.NullHandler())
    named = _of_file(parsed, environment) | of_options(parsed)
    return access_of(named) if named else PLAIN_TEXT


def properties(parsed: argparse.Namespace, environment: Mapping[str, str], known: Container[str]) -> dict[str, str]:
    """Return the access properties, those of the file that are `known`, and --property.

    The file may belong to other clients, with properties of their own. Raises UsageError.
    """
    of_file = _of_file(parsed, environment)
    return {name: value for name, value in of_file.items() if name in known or is_of_access(name)} | of_options(parsed)


def _of_file(parsed: argparse.Namespace, environment: Mapping[str, str]) -> dict[str, str]:
    file = getattr(parsed, "command_config", None) or environment.get("ROTUNDA_COMMAND_CONFIG")
    if not file and not getattr(parsed, "bootstrap", None):
        # A broker of `start --secure` names the file of its first user.
        record = run_dir.read(parsed.run_dir or run_dir.default_path(environment))
        file = record.client_properties if record is not None and Path(record.client_properties).is_file() else None
    return read_properties(Path(file)) if file else {}


def of_options(parsed: argparse.Namespace) -> dict[str, str]:
    """Return the properties of --property. Raises UsageError."""
    return dict(assignment(text, "--property") for text in getattr(parsed, "properties", ()))


def address(parsed: argparse.Namespace, environment: Mapping[str, str], ours: Access = PLAIN_TEXT) -> str:
    """Return the selected broker: of --bootstrap, of --run-dir, of the client's properties, or the local one.

    Raises UsageError for an invalid address, and BootFailed with exit code 3 when no broker runs.
    """
    takes_addresses = "bootstrap" in parsed
    given = (takes_addresses and parsed.bootstrap) or ("" if parsed.run_dir else ours.bootstrap)
    if given:
        for each in str(given).split(","):
            check_address(each.strip(), "--bootstrap" if takes_addresses and parsed.bootstrap else "bootstrap.servers")
        return str(given)
    record = running(parsed, environment)
    return record.control_plane or record.local


def local(parsed: argparse.Namespace, environment: Mapping[str, str]) -> RunRecord | None:
    """Return the record of the selected broker, if it is the one that runs with the run directory."""
    record = run_dir.read(parsed.run_dir or run_dir.default_path(environment))
    if record is None or not record.is_alive:
        return None
    selected = address(parsed, environment, access(parsed, environment)).split(",")
    own = f"{record.bootstrap},{record.local},{record.control_plane}".split(",")
    return record if {each.strip() for each in selected} <= set(own) else None


def running(parsed: argparse.Namespace, environment: Mapping[str, str]) -> RunRecord:
    """Return the record of the broker running with the run directory. Raises BootFailed with exit code 3."""
    path = parsed.run_dir or run_dir.default_path(environment)
    record = run_dir.read(path)
    if record is None or not record.is_alive:
        run_dir.check_readable(Path(path))
        raise run_dir.not_running(path, "or use --bootstrap" if "bootstrap" in parsed else "")
    return record
