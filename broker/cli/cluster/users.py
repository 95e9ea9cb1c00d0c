"""`rotunda user`: users with SCRAM passwords, as a client of any Kafka broker, or in the data of a stopped one."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from rotunda.broker.cli.cluster.cluster_client import connected
from rotunda.broker.client.admin import users
from rotunda.broker.errors import ApiError, RotundaError, UsageError
from rotunda.broker.log.data_dir import lock_data_dir
from rotunda.broker.metadata.security.offline_users import store_user
from rotunda.broker.metadata.security.scram_users import MECHANISMS
from rotunda.broker.runtime.boot_failures import boot_failures
from rotunda.broker.security.sasl.scram_credential import FEWEST_ITERATIONS, MOST_ITERATIONS, new_password
from rotunda.broker.text_table import aligned, did_you_mean, printable


def run(parsed: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Run one action; Kafka's errors are raised with their names."""
    if parsed.action == "add":
        _add(parsed, environment)
        return 0
    with connected(parsed, environment) as client:
        if parsed.action == "list":
            _print(parsed, users.describe(client))
            return 0
        found = users.describe(client, [parsed.name])
        if not found:
            hint = did_you_mean(parsed.name, users.describe(client))
            raise RotundaError(f"unknown user {printable(parsed.name)}{hint}; see `rotunda user list`")
        if parsed.action == "delete":
            users.delete(client, parsed.name, parsed.mechanisms or found[parsed.name])
            found = users.describe(client, [parsed.name])
            if not parsed.json:
                left = ", ".join(found.get(parsed.name, ()))
                print(f"user {printable(parsed.name)}: {f'has {left} left' if left else 'deleted'}")
                return 0
        _print(parsed, found)
    return 0


def _add(parsed: argparse.Namespace, environment: Mapping[str, str]) -> None:
    if not FEWEST_ITERATIONS <= parsed.iterations <= MOST_ITERATIONS:
        raise UsageError(f"--iterations is from {FEWEST_ITERATIONS} to {MOST_ITERATIONS}, not {parsed.iterations}")
    mechanisms = parsed.mechanisms or list(MECHANISMS)
    password = new_password() if parsed.generate else _asked_for(parsed.name)
    if parsed.data_dir is not None:
        _store(parsed, password, mechanisms)
    else:
        with connected(parsed, environment) as client:
            users.add(client, parsed.name, password, mechanisms, parsed.iterations)
    if parsed.json:
        shown = {"user": parsed.name, "mechanisms": mechanisms, "iterations": parsed.iterations}
        print(json.dumps({**shown, "password": password if parsed.generate else None}, indent=1))
        return
    print(f"user {printable(parsed.name)}: {', '.join(mechanisms)}")
    if parsed.generate:
        print(f"password: {password}")


def _store(parsed: argparse.Namespace, password: str, mechanisms: list[str]) -> None:
    """Write to the data of a stopped broker. Raises DataDirInUse if it runs."""
    directory: Path = parsed.data_dir
    with boot_failures(f"data directory {directory} cannot be used"):
        directory.mkdir(parents=True, exist_ok=True)
        lock = lock_data_dir(directory)
    try:
        store_user(directory, parsed.name, password, mechanisms, parsed.iterations)
    except ApiError as error:
        raise RotundaError(error.message or str(error)) from error
    finally:
        os.close(lock)


def _asked_for(name: str) -> str:
    """Return the password from the terminal, or the first line of standard input. Raises UsageError."""
    if sys.stdin.isatty():
        password = getpass.getpass(f"password of {printable(name)}: ")
        if password != getpass.getpass("again: "):
            raise UsageError("the two passwords differ; nothing was changed")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise UsageError("the password is empty: write it to standard input, or use --generate")
    return password


def _print(parsed: argparse.Namespace, found: users.Users) -> None:
    rows = sorted(found.items())
    if parsed.json:
        print(json.dumps([{"user": user, "mechanisms": dict(mechanisms)} for user, mechanisms in rows], indent=1))
        return
    cells = [
        (printable(user), ", ".join(f"{name} ({count} iterations)" for name, count in mechanisms.items()))
        for user, mechanisms in rows
    ]
    print("\n".join(aligned(("USER", "PASSWORDS FOR"), cells)))
