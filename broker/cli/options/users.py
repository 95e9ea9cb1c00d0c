"""The options of `rotunda user`."""

from __future__ import annotations

import argparse
from pathlib import Path

from broker.cli.options.common import Action, add_actions, json_option

_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")

_ADD = """\
The password is asked for at the terminal, twice, or is the first line of standard input. With --generate it is made and
printed once. It is no option: options are in the list of processes and in the shell's history.

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
        "--mechanism", action="append", choices=_MECHANISMS, dest="mechanisms", help="repeatable; by default both"
    )


def _add(action: argparse.ArgumentParser) -> None:
    _mechanism(action)
    action.add_argument("--generate", action="store_true", help="make a password of 128 bits and print it once")
    action.add_argument(
        "--iterations", type=int, default=8192, metavar="COUNT", help="4096 to 16384: how slow guessing is (8192)"
    )
    action.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="of a broker that does not run, whose first user this may be"
    )


_ACTIONS = {
    "add": Action("give a user a password, in place of the one that it has", _add, _ADD),
    "list": Action("list users", json_option, _LIST_JSON),
    "describe": Action("show one user", _name, _LIST_JSON),
    "delete": Action("delete a user, or its password for one mechanism", _mechanism, _LIST_JSON),
}
