"""The options of `rotunda quota`."""

from __future__ import annotations

import argparse

from rotunda.broker.cli.options.common import Action, add_actions, json_option

_LIST_JSON = """\
--json prints an array of objects: entity {type: name, or null for the default}, quotas {name: value}
"""
_DESCRIBE_JSON = """\
--json prints an object: quotas as in `list`, and use, an array of objects: quota, user, client_id (empty: any), limit
and rate a second, throttled (number of times), throttle_ms (total), throttled_ms (remaining). use is null with
--bootstrap: it is read from the run directory.
"""
_CHANGED_JSON = """\
--json prints an array of objects: quota, before, after; null is a quota that is not set
"""


def add_quota(command: argparse.ArgumentParser) -> None:
    """Add the actions of `rotunda quota`."""
    add_actions(command, _ACTIONS)


def _whose(action: argparse.ArgumentParser) -> None:
    json_option(action)
    action.add_argument("--user", metavar="NAME", help="user name; ANONYMOUS for unauthenticated clients")
    action.add_argument("--client-id", metavar="ID", help="client id; with --user only for that user")
    action.add_argument("--ip", metavar="ADDRESS", help="IP address")
    action.add_argument(
        "--default",
        action="append",
        default=[],
        dest="defaults",
        choices=("user", "client-id", "ip"),
        help="default for users, client ids or addresses without a quota; repeatable",
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
    action.add_argument("names", nargs="*", metavar="QUOTA", help="a quota (default: all)")


_ACTIONS = {
    "list": Action("list all quotas", json_option, _LIST_JSON),
    "describe": Action("show quotas, their use and throttled clients", _whose, _DESCRIBE_JSON),
    "set": Action("set quotas, all or none, in force within a second", _set, _CHANGED_JSON),
    "delete": Action("delete quotas", _delete, _CHANGED_JSON),
}
