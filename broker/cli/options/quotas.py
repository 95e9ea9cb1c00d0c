"""The options of `rotunda quota`."""

from __future__ import annotations

import argparse

from broker.cli.options.common import Action, add_actions, json_option

_LIST_JSON = """\
--json prints an array of objects: entity {type: name, or null for the default}, quotas {name: value}
"""
_DESCRIBE_JSON = """\
--json prints an object: quotas as of `list`, and use, an array of objects: quota, user, client_id (an empty one stands
for whoever it may be), limit and rate in a second, throttled (how often), throttle_ms (for how long in all),
throttled_ms (for how long still). use is null with --bootstrap: it is read from the broker of --run-dir.
"""
_CHANGED_JSON = """\
--json prints an array of objects: quota, before, after; null stands for one that is not set
"""


def add_quota(command: argparse.ArgumentParser) -> None:
    """Add the actions of `rotunda quota`."""
    add_actions(command, _ACTIONS)


def _whose(action: argparse.ArgumentParser) -> None:
    json_option(action)
    action.add_argument("--user", metavar="NAME", help="a user; ANONYMOUS is who has not authenticated")
    action.add_argument("--client-id", metavar="ID", help="a client id; with --user that user's alone")
    action.add_argument("--ip", metavar="ADDRESS", help="an address")
    action.add_argument(
        "--default",
        action="append",
        default=[],
        dest="defaults",
        choices=("user", "client-id", "ip"),
        help="each of those that have no quota of their own; repeatable",
    )


def _set(action: argparse.ArgumentParser) -> None:
    _whose(action)
    action.add_argument(
        "assignments",
        nargs="+",
        metavar="QUOTA=NUMBER",
        help="producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate; of an address "
        "connection_creation_rate",
    )


def _delete(action: argparse.ArgumentParser) -> None:
    _whose(action)
    action.add_argument("names", nargs="*", metavar="QUOTA", help="a quota; without any all of them")


_ACTIONS = {
    "list": Action("list what is set, for everybody", json_option, _LIST_JSON),
    "describe": Action("show what is set, who uses how much and who is throttled", _whose, _DESCRIBE_JSON),
    "set": Action("set quotas, all of them or none; they hold within a second", _set, _CHANGED_JSON),
    "delete": Action("delete quotas", _delete, _CHANGED_JSON),
}
