"""The options of `rotunda acl`, with the terms of kafka-acls."""

from __future__ import annotations

import argparse

from rotunda.broker.cli.options.common import Action, add_actions, json_option

_JSON = """\
--json prints an array of objects: resource_type, name, pattern_type, principal, host, operation, permission
"""

#: The operations that can be allowed or denied.
OPERATIONS = (
    "all", "read", "write", "create", "delete", "alter", "describe", "cluster-action", "describe-configs",
    "alter-configs", "idempotent-write",
)  # fmt: skip


def add_acl(command: argparse.ArgumentParser) -> None:
    """Add the actions of `rotunda acl`."""
    add_actions(command, _ACTIONS)


def _resources(action: argparse.ArgumentParser) -> None:
    json_option(action)
    for option, what in (("--topic", "a topic"), ("--group", "a group"), ("--transactional-id", "a transactional id")):
        action.add_argument(
            option, action="append", default=[], metavar="NAME", help=f"{what}; '*' for all; repeatable"
        )
    action.add_argument("--cluster", action="store_true", help="the cluster")


def _change(action: argparse.ArgumentParser) -> None:
    _resources(action)
    for word in ("allow", "deny"):
        action.add_argument(
            f"--{word}-principal",
            action="append",
            default=[],
            metavar="PRINCIPAL",
            help=f"principal to {word}: User:NAME, or 'User:*' for all users; repeatable",
        )
        action.add_argument(
            f"--{word}-host",
            action="append",
            default=[],
            metavar="ADDRESS",
            help="only from this address or range, such as 10.0.0.0/8; repeatable",
        )
    action.add_argument(
        "--operation", action="append", default=[], choices=OPERATIONS, help="operation (default: all); repeatable"
    )
    action.add_argument(
        "--resource-pattern-type",
        choices=("literal", "prefixed"),
        default="literal",
        help="literal (default): exact resource names; prefixed: prefixes of names",
    )
    action.add_argument("--producer", action="store_true", help="all operations that a producer to --topic needs")
    action.add_argument(
        "--consumer", action="store_true", help="all operations that a consumer of --topic in --group needs"
    )
    action.add_argument("--idempotent", action="store_true", help="with --producer: for brokers older than Kafka 2.8")


def _list(action: argparse.ArgumentParser) -> None:
    _resources(action)
    action.add_argument("--principal", metavar="PRINCIPAL", help="only ACLs of this principal")
    action.add_argument(
        "--resource-pattern-type",
        choices=("any", "match", "literal", "prefixed"),
        default="match",
        help="match (default): all ACLs that apply to the named resources",
    )


_ACTIONS = {
    "list": Action("list ACLs, all or those of named resources", _list, _JSON),
    "add": Action("add ACLs, in force within a second", _change, _JSON),
    "delete": Action("delete ACLs; without a principal, all ACLs of the named resources", _change, _JSON),
}
