"""`rotunda acl`: access control lists, as a client of any Kafka broker, with the terms of kafka-acls."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from rotunda.broker.cli.cluster.cluster_client import connected
from rotunda.broker.client.admin import acls
from rotunda.broker.errors import UsageError
from rotunda.broker.security.acl.acls import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    name_of,
)
from rotunda.broker.text_table import aligned, printable

#: Resource types by command-line option.
_KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
}
_READS = (Operation.READ, Operation.DESCRIBE)
_WRITES = (Operation.WRITE, Operation.DESCRIBE)

#: Operations of each convenience option by kind of resource, as in kafka-acls.
_PRODUCER = {ResourceType.TOPIC: (*_WRITES, Operation.CREATE), ResourceType.TRANSACTIONAL_ID: _WRITES}
_CONSUMER = {ResourceType.TOPIC: _READS, ResourceType.GROUP: (Operation.READ,)}

#: (type, name) of a resource.
_Resource = tuple[ResourceType, str]


def run(parsed: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Run one action; Kafka's errors are raised with their names."""
    if parsed.action == "list":
        filters = _listed(parsed)
        with connected(parsed, environment) as client:
            _print(parsed, sorted({acl for each in filters for acl in acls.describe(client, each)}))
        return 0
    wanted = list(dict.fromkeys(_acls(parsed)))
    if parsed.action == "add":
        if not wanted:
            raise UsageError("acl add: missing --allow-principal or --deny-principal")
        with connected(parsed, environment) as client:
            acls.create(client, wanted)
        _print(parsed, wanted)
        return 0
    filters = [AclFilter(*acl) for acl in wanted] or _of_resources(parsed)
    with connected(parsed, environment) as client:
        _print(parsed, acls.delete(client, filters))
    return 0


def _resources(parsed: argparse.Namespace) -> list[_Resource]:
    named = [(kind, name) for option, kind in _KINDS.items() for name in getattr(parsed, option)]
    return [*named, *([(ResourceType.CLUSTER, CLUSTER_NAME)] if parsed.cluster else [])]


def _acls(parsed: argparse.Namespace) -> Iterator[Acl]:
    """Yield the ACLs of the options. Raises UsageError."""
    resources, pattern = _resources(parsed), PatternType[parsed.resource_pattern_type.upper()]
    if not resources:
        raise UsageError(f"acl {parsed.action}: missing --topic, --group, --transactional-id or --cluster")
    for permission, word in ((Permission.ALLOW, "allow"), (Permission.DENY, "deny")):
        principals, hosts = getattr(parsed, f"{word}_principal"), getattr(parsed, f"{word}_host")
        if hosts and not principals:
            raise UsageError(f"--{word}-host needs --{word}-principal")
        for (kind, name), operation in _wanted(parsed, resources):
            of_cluster = kind == ResourceType.CLUSTER
            for principal, host in product(principals, hosts or [WILDCARD]):
                own = PatternType.LITERAL if of_cluster else pattern
                yield Acl(int(kind), name, int(own), principal, host, int(operation), int(permission))


def _wanted(parsed: argparse.Namespace, resources: Sequence[_Resource]) -> Iterator[tuple[_Resource, Operation]]:
    """Yield the operations to allow or deny on each resource."""
    if not (parsed.producer or parsed.consumer):
        operations = [Operation[name.upper().replace("-", "_")] for name in parsed.operation] or [Operation.ALL]
        yield from product(resources, operations)
        return
    if parsed.operation:
        raise UsageError("--producer and --consumer exclude --operation")
    if not parsed.topic or (parsed.consumer and not parsed.group):
        raise UsageError("--producer needs --topic, --consumer needs --topic and --group")
    for resource in resources:
        allowed = dict.fromkeys(_PRODUCER.get(resource[0], ()) if parsed.producer else ())
        allowed |= dict.fromkeys(_CONSUMER.get(resource[0], ()) if parsed.consumer else ())
        for operation in allowed:
            yield resource, operation
    if parsed.idempotent:
        yield (ResourceType.CLUSTER, CLUSTER_NAME), Operation.IDEMPOTENT_WRITE


def _listed(parsed: argparse.Namespace) -> list[AclFilter]:
    pattern = PatternType[parsed.resource_pattern_type.upper()]
    resources: Sequence[tuple[int, str | None]] = _resources(parsed) or [(ResourceType.ANY, None)]
    return [
        AclFilter(kind, name, pattern, parsed.principal, None, Operation.ANY, Permission.ANY)
        for kind, name in resources
    ]


def _of_resources(parsed: argparse.Namespace) -> list[AclFilter]:
    pattern = PatternType[parsed.resource_pattern_type.upper()]
    return [
        AclFilter(kind, name, pattern, None, None, Operation.ANY, Permission.ANY) for kind, name in _resources(parsed)
    ]


def _print(parsed: argparse.Namespace, found: Sequence[Acl]) -> None:
    rows = [
        {
            "resource_type": name_of(ResourceType, acl.resource_type),
            "name": acl.name,
            "pattern_type": name_of(PatternType, acl.pattern_type),
            "principal": acl.principal,
            "host": acl.host,
            "operation": name_of(Operation, acl.operation),
            "permission": name_of(Permission, acl.permission),
        }
        for acl in found
    ]
    if parsed.json:
        print(json.dumps(rows, indent=1))
        return
    headers = ("RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION")
    print("\n".join(aligned(headers, [tuple(printable(value) for value in row.values()) for row in rows])))
