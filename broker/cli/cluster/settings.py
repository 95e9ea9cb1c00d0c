"""`rotunda config`: shows and changes dynamic settings, as a client of any Kafka broker."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Callable, Mapping

from rotunda.broker.cli.cluster.cluster_client import connected
from rotunda.broker.cli.config import assignment, is_secret, read_value
from rotunda.broker.cli.process_list import hide
from rotunda.broker.client.admin import settings
from rotunda.broker.client.admin.settings import Resource, Setting
from rotunda.broker.client.network.blocking_client import BlockingClient
from rotunda.broker.errors import RotundaError, UsageError
from rotunda.broker.text_table import did_you_mean, printable

_WIDTH = 100
_Changes = Mapping[str, str | None]


def run(parsed: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Run one action; Kafka's errors are raised with their names."""
    changes = _changes(parsed)
    with connected(parsed, environment) as client:
        _ACTIONS[parsed.action](parsed, client, _resource(parsed, client), changes)
    return 0


def _resource(parsed: argparse.Namespace, client: BlockingClient) -> Resource:
    if parsed.topic is not None:
        return Resource(settings.TOPIC, parsed.topic)
    if parsed.group is not None:
        return Resource(settings.GROUP, parsed.group)
    if parsed.cluster:
        return Resource(settings.BROKER, "")
    here = settings.this_broker(client)
    return here._replace(resource_type=settings.LOGGERS) if parsed.loggers else here


def _changes(parsed: argparse.Namespace) -> _Changes:
    """Return the changes of `set` and `delete`; None for a deletion. Raises UsageError."""
    if parsed.action == "set":
        hide(is_secret)
        given = [assignment(text, "config set") for text in parsed.assignments]
        changes = [(name, read_value(name, value, "config set")) for name, value in given]
        names = [name for name, _ in changes]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise UsageError(f"config set: duplicate setting {twice[0]}")
        return dict(changes)
    return dict.fromkeys(parsed.names) if parsed.action == "delete" else {}


def _list(parsed: argparse.Namespace, client: BlockingClient, resource: Resource, _: _Changes) -> None:
    listed = [each for each in settings.describe_resource(client, resource) if parsed.all or each.is_set]
    if parsed.json:
        print(json.dumps([_fields(each) for each in listed], indent=1))
        return
    for each in listed:
        print(f"{each.name}={printable(each.value)}  # {each.origin}")


def _describe(parsed: argparse.Namespace, client: BlockingClient, resource: Resource, _: _Changes) -> None:
    by_name = {each.name: each for each in settings.describe_resource(client, resource)}
    for name in parsed.names:
        if name not in by_name:
            raise RotundaError(f"unknown setting {printable(name)}{did_you_mean(name, by_name)}")
    found = [by_name[name] for name in parsed.names]
    if parsed.json:
        print(json.dumps([_fields(each) for each in found], indent=1))
        return
    for each in found:
        print(f"{each.name}={printable(each.value)}  # {each.origin}")
        for name, value, origin in each.others:
            print(f"  otherwise {'' if name == each.name else name + '='}{printable(value)}, {origin}")
        print("  needs a restart" if each.is_fixed else "  dynamic: in force without a restart")
        for line in textwrap.wrap(printable(each.text), _WIDTH - 2):
            print(f"  {line}")


def _change(parsed: argparse.Namespace, client: BlockingClient, resource: Resource, changes: _Changes) -> None:
    before = _values(client, resource)
    settings.alter(client, resource, changes)
    after = _values(client, resource)
    if parsed.json:
        listed = [{"name": name, "before": before.get(name), "after": after.get(name)} for name in changes]
        print(json.dumps(listed, indent=1))
        return
    for name in changes:
        print(f"{printable(name)}: {_shown(before.get(name))} -> {_shown(after.get(name))}")


def _values(client: BlockingClient, resource: Resource) -> dict[str, str]:
    return {each.name: each.value for each in settings.describe_resource(client, resource)}


def _shown(value: str | None) -> str:
    return "(not set)" if value is None else printable(value) or "(empty)"


def _fields(setting: Setting) -> dict[str, object]:
    return {
        "name": setting.name,
        "value": setting.value,
        "origin": setting.origin,
        "dynamic": not setting.is_fixed,
        "otherwise": [{"name": name, "value": value, "origin": origin} for name, value, origin in setting.others],
    }


_ACTIONS: dict[str, Callable[[argparse.Namespace, BlockingClient, Resource, _Changes], None]] = {
    "list": _list,
    "describe": _describe,
    "set": _change,
    "delete": _change,
}
