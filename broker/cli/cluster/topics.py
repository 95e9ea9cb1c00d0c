"""`rotunda topic`: create, list, describe, alter and delete topics, as a client of a running broker."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping

from rotunda.broker.cli.cluster.cluster_client import connected
from rotunda.broker.cli.config import assignment
from rotunda.broker.client.admin import topics
from rotunda.broker.client.consumer.reader import unknown_topic
from rotunda.broker.client.network.blocking_client import BlockingClient
from rotunda.broker.errors import ApiError, UsageError
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.text_table import aligned, byte_size, printable


def run(parsed: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Run one action; Kafka's errors are raised with their names."""
    configs = _configs(parsed)
    with connected(parsed, environment) as client:
        try:
            _ACTIONS[parsed.action](parsed, configs, client)
        except ApiError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            raise ApiError(error.code, unknown_topic(client, parsed.name)) from error
    return 0


_Configs = Mapping[str, str | None]


def _configs(parsed: argparse.Namespace) -> _Configs:
    """Return the settings of --config and --delete-config; None for a deletion. Raises UsageError."""
    configs: dict[str, str | None] = dict(assignment(text, "--config") for text in getattr(parsed, "configs", ()))
    for key in getattr(parsed, "deleted_configs", ()):
        if configs.get(key) is not None:
            raise UsageError(f"--delete-config {key}: excluded by --config")
        configs[key] = None
    if parsed.action == "alter" and not configs and parsed.partitions is None:
        raise UsageError("topic alter: nothing to change; use --partitions, --config or --delete-config")
    return configs


def _create(parsed: argparse.Namespace, configs: _Configs, client: BlockingClient) -> None:
    topics.create(client, parsed.name, parsed.partitions, parsed.replication_factor, configs)
    print(f"created topic {parsed.name}")


def _list(parsed: argparse.Namespace, _: _Configs, client: BlockingClient) -> None:
    listed = topics.list_topics(client)
    if parsed.json:
        print(json.dumps([topic._asdict() for topic in listed], indent=1))
    elif listed:
        rows = [(printable(each.name), each.partitions, each.records, byte_size(each.size_bytes)) for each in listed]
        print("\n".join(aligned(("TOPIC", "PARTITIONS", "RECORDS", "SIZE"), rows)))


def _describe(parsed: argparse.Namespace, _: _Configs, client: BlockingClient) -> None:
    topic = topics.describe(client, parsed.name)
    if parsed.json:
        partitions = [partition._asdict() for partition in topic.partitions]
        print(json.dumps({**topic._asdict(), "partitions": partitions}, indent=1))
        return
    print(f"topic {topic.name} id={topic.topic_id} partitions={len(topic.partitions)}")
    for name, value in topic.configs.items():
        print(f"  {name}={value}")
    for partition in topic.partitions:
        replicas = ",".join(map(str, partition.replicas))
        in_sync = ",".join(map(str, partition.in_sync))
        where = f"leader={partition.leader} replicas={replicas} in_sync={in_sync}"
        if partition.log_end_offset is not None:
            where += f" offsets={partition.log_start_offset}..{partition.log_end_offset}"
        print(f"  partition {partition.partition} {where}")


def _alter(parsed: argparse.Namespace, configs: _Configs, client: BlockingClient) -> None:
    # Validate first, so that a rejected part prevents the other part too.
    topics.alter(client, parsed.name, parsed.partitions, configs, validate_only=True)
    before = topics.describe(client, parsed.name)
    topics.alter(client, parsed.name, parsed.partitions, configs)
    after = topics.describe(client, parsed.name)
    counts: list[tuple[str, str | int | None, str | int | None]] = []
    if parsed.partitions is not None:
        counts.append(("partitions", len(before.partitions), len(after.partitions)))
    changes = counts + [(key, before.configs.get(key), after.configs.get(key)) for key in configs]
    if parsed.json:
        listed = [{"name": name, "before": old, "after": new} for name, old, new in changes]
        print(json.dumps({"topic": parsed.name, "changes": listed}, indent=1))
        return
    print(f"altered topic {parsed.name}")
    for name, old, new in changes:
        print(f"  {printable(name)}: {_value(old)} -> {_value(new)}" + (" (as before)" if old == new else ""))


def _value(value: str | int | None) -> str:
    return "(the broker's)" if value is None else printable(str(value))


def _delete(parsed: argparse.Namespace, _: _Configs, client: BlockingClient) -> None:
    topics.delete(client, parsed.name)
    print(f"deleted topic {parsed.name}")


_ACTIONS: dict[str, Callable[[argparse.Namespace, _Configs, BlockingClient], None]] = {
    "create": _create,
    "list": _list,
    "describe": _describe,
    "alter": _alter,
    "delete": _delete,
}
