"""`rotunda topic`: create, list, describe and delete topics, as a client of a running broker."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping

from broker import run_dir
from broker.cli_config import assignment, check_address
from broker.client import topics
from broker.client.connection import Connection
from broker.errors import ApiError, BootFailed, RotundaError
from broker.protocol.error_codes import ErrorCode, text_of

_NOT_RUNNING_EXIT_CODE = 3


def run(parsed: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Do one action; what Kafka answers with an error is raised with Kafka's name for it."""
    configs = dict(assignment(text, "--config") for text in getattr(parsed, "configs", ()))
    with Connection(_address(parsed, environment)) as connection:
        try:
            _ACTIONS[parsed.action](parsed, configs, connection)
        except ApiError as error:
            raise RotundaError(f"{_name(error.code)}: {error.message or text_of(error.code)}") from error
    return 0


def _name(code: int) -> str:
    """Return Kafka's name of an error code, or the number when this version knows none."""
    return next((error.name for error in ErrorCode if error == code), f"error {code}")


def _address(parsed: argparse.Namespace, environment: Mapping[str, str]) -> str:
    if parsed.bootstrap:
        for each in str(parsed.bootstrap).split(","):
            check_address(each, "--bootstrap")
        return str(parsed.bootstrap)
    path = parsed.run_dir or run_dir.default_path(environment)
    record = run_dir.read(path)
    if record is None or not record.is_alive:
        raise BootFailed(f"no broker runs with run directory {path}; or use --bootstrap", _NOT_RUNNING_EXIT_CODE)
    return record.bootstrap


def _create(parsed: argparse.Namespace, configs: Mapping[str, str], connection: Connection) -> None:
    topics.create(connection, parsed.name, parsed.partitions, parsed.replication_factor, configs)
    print(f"created topic {parsed.name}")


def _list(parsed: argparse.Namespace, _: Mapping[str, str], connection: Connection) -> None:
    names = topics.names(connection)
    if parsed.json:
        print(json.dumps(names))
        return
    for name in names:
        print(name)


def _describe(parsed: argparse.Namespace, _: Mapping[str, str], connection: Connection) -> None:
    topic = topics.describe(connection, parsed.name)
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
        print(f"  partition {partition.partition} {where}")


def _delete(parsed: argparse.Namespace, _: Mapping[str, str], connection: Connection) -> None:
    topics.delete(connection, parsed.name)
    print(f"deleted topic {parsed.name}")


_ACTIONS: dict[str, Callable[[argparse.Namespace, Mapping[str, str], Connection], None]] = {
    "create": _create,
    "list": _list,
    "describe": _describe,
    "delete": _delete,
}
