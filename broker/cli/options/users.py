"""The options of `rotunda user`."""

from __future__ import annotations

import argparse
from pathlib import Path

from rotunda.broker.cli.options.common import Action, add_actions, json_option

#: Hash iterations of a password, unless others are asked for.
DEFAULT_ITERATIONS = 8192
_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")

_ADD = """\
The password is read twice from the terminal, or from the first line of standard input. --generate creates one and
prints it once. There is no password option: other users can see command arguments.

--json prints an object: user, mechanisms, iterations, password (null unless it was generated)
"""
_LIST_JSON = """\
--json prints an array of objects: user, mechanisms {name: iterations}
"""


def add_user(command: argparse.ArgumentParser) -> None:
    """Add the actions of `rotunda user`."""
    add_actions(command, _ACTIONS)


def _name(action: argparse.ArgumentParser) -> None:
    json_option(action)
    action.add_argument("name", help="the user's name")


def _mechanism(action: argparse.ArgumentParser) -> None:
    _name(action)
    action.add_argument(
        "--mechanism",
        action="append",
        choices=_MECHANISMS,
        dest="mechanisms",
        help="mechanism (default: both); repeatable",
    )


def _add(action: argparse.ArgumentParser) -> None:
    _mechanism(action)
    action.add_argument("--generate", action="store_true", help="generate a password of 128 bits and print it once")
    action.add_argument(
        "--iterations",
        type=int,
        default=DEFAULT_ITERATIONS,
        metavar="COUNT",
        help=f"iterations, 4096 to 16384 (default: {DEFAULT_ITERATIONS})",
    )
    action.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help="write to the data directory of a stopped broker, for the first user",
    )


_ACTIONS = {
    "add": Action("add a user, or replace its password", _add, _ADD),
    "list": Action("list users", json_option, _LIST_JSON),
    "describe": Action("show one user", _name, _LIST_JSON),
    "delete": Action("delete a user or one of its mechanisms", _mechanism, _LIST_JSON),
}
