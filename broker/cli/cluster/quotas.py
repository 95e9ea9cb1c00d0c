"""`rotunda quota`: quotas of users, client ids and addresses, as a client of any Kafka broker; and their usage.

The usage is read from the shared memory of the broker of --run-dir, without requests to it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rotunda.broker.cli.cluster.cluster_client import connected
from rotunda.broker.cli.config import assignment
from rotunda.broker.client.admin import quotas
from rotunda.broker.client.admin.quotas import Entity, EntityQuotas
from rotunda.broker.client.network.blocking_client import BlockingClient
from rotunda.broker.errors import UsageError
from rotunda.broker.runtime import run_dir
from rotunda.broker.text_table import aligned, printable

if TYPE_CHECKING:
    from rotunda.broker.metrics.quota_use import ClientUse

_TYPES = ("user", "client-id", "ip")
_Changes = Sequence[tuple[str, float | None]]


def run(parsed: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Run one action; Kafka's errors are raised with their names."""
    entity, changes = _entity(parsed), _changes(parsed)
    with connected(parsed, environment) as client:
        if parsed.action in {"set", "delete"}:
            _alter(parsed, client, entity, changes)
        elif parsed.action == "describe":
            _describe(parsed, quotas.describe(client, entity or None), _uses(parsed, environment, entity))
        else:
            _list(parsed, quotas.describe(client))
    return 0


def _entity(parsed: argparse.Namespace) -> Entity:
    """Return the entity of the options. Raises UsageError."""
    entity: dict[str, str | None] = {}
    for kind in _TYPES:
        name = getattr(parsed, kind.replace("-", "_"), None)
        if name is not None:
            entity[kind] = name
        if kind in getattr(parsed, "defaults", ()):
            if name is not None:
                raise UsageError(f"--{kind} and --default {kind} exclude each other")
            entity[kind] = None
    if not entity and parsed.action in {"set", "delete"}:
        raise UsageError(f"quota {parsed.action}: missing --user, --client-id, --ip or --default")
    return entity


def _changes(parsed: argparse.Namespace) -> _Changes:
    if parsed.action == "delete":
        return [(name, None) for name in parsed.names]
    changes = [assignment(text, "quota set") for text in getattr(parsed, "assignments", ())]
    return [(name, _number(name, text)) for name, text in changes]


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"quota set: {name}={text}: the value is not a number") from None


def _alter(parsed: argparse.Namespace, client: BlockingClient, entity: Entity, changes: _Changes) -> None:
    before = _of(quotas.describe(client, entity))
    wanted = changes or [(name, None) for name in before]
    if wanted:
        quotas.alter(client, entity, wanted)
    after = _of(quotas.describe(client, entity))
    changed = [(name, before.get(name), after.get(name)) for name, _ in wanted]
    if parsed.json:
        print(json.dumps([{"quota": name, "before": old, "after": new} for name, old, new in changed], indent=1))
        return
    for name, old, new in changed:
        print(f"{_title(entity)}: {name}: {_value(old)} -> {_value(new)}")


def _of(described: Sequence[EntityQuotas]) -> Mapping[str, float]:
    return described[0].quotas if described else {}


def _list(parsed: argparse.Namespace, found: Sequence[EntityQuotas]) -> None:
    if parsed.json:
        print(json.dumps([each._asdict() for each in found], indent=1))
        return
    for entity, values in found:
        print(f"{_title(entity)}: {' '.join(f'{name}={_value(value)}' for name, value in values.items())}")


def _describe(parsed: argparse.Namespace, found: Sequence[EntityQuotas], uses: Sequence[ClientUse] | None) -> None:
    if parsed.json:
        used = None if uses is None else [each._asdict() for each in uses]
        print(json.dumps({"quotas": [each._asdict() for each in found], "use": used}, indent=1))
        return
    _list(parsed, found)
    headers = ("QUOTA", "USER", "CLIENT-ID", "LIMIT/S", "NOW/S", "THROTTLED", "FOR MS", "STILL MS")
    rows = [
        (
            each.quota,
            printable(each.user) or "-",
            printable(each.client_id) or "-",
            _value(each.limit),
            "-" if each.rate is None else _value(round(each.rate, 1)),
            each.throttled,
            each.throttle_ms,
            each.throttled_ms,
        )
        for each in uses or ()
    ]
    if rows:
        print("\n".join(("", *aligned(headers, rows))))


def _uses(parsed: argparse.Namespace, environment: Mapping[str, str], entity: Entity) -> list[ClientUse] | None:
    """Return the usage of clients that match the entity; None for a broker of another machine."""
    if parsed.bootstrap or "ip" in entity:
        return None
    from rotunda.broker.clock import SystemClock  # noqa: PLC0415
    from rotunda.broker.metrics.quota_use import clients_use  # noqa: PLC0415
    from rotunda.shm.segment import attach  # noqa: PLC0415
    from rotunda.shm.tables.quota_tables import QuotaTables  # noqa: PLC0415

    record = run_dir.read(parsed.run_dir or run_dir.default_path(environment))
    if record is None:
        return None
    tables = QuotaTables.attached(attach(f"/rotunda-{record.instance}-quotas").view)
    found = clients_use(tables, SystemClock.monotonic_ns() // 1_000_000)
    wanted = (entity.get("user"), entity.get("client-id"))
    return [each for each in found if all(name in {None, own} for name, own in zip(wanted, each[1:3], strict=True))]


def _title(entity: Entity) -> str:
    return ", ".join(
        f"default {kind}" if entity[kind] is None else f"{kind} {printable(str(entity[kind]))}"
        for kind in _TYPES
        if kind in entity
    )


def _value(value: float | None) -> str:
    return "(not set)" if value is None else f"{value:.15g}"
