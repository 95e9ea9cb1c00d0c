"""Groups and transactions as their handlers tell of them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from web.status import Group, Member, Offset, Transaction

if TYPE_CHECKING:
    from web.readings import Reading


def groups_of(now: Reading) -> list[Group]:
    """Return every group, by id."""
    found = [_group(each, handler) for handler, snapshot in now.broker.snapshots.items() for each in snapshot["groups"]]
    return sorted(found, key=lambda group: group.id)


def transactions_of(now: Reading) -> list[Transaction]:
    """Return the transactions under way."""
    return [
        Transaction(
            id=each["id"],
            state=each["state"],
            producer_id=each["producer_id"],
            start_ms=each["start_ms"],
            timeout_ms=each["timeout_ms"],
            partitions=each["partitions"],
        )
        for snapshot in now.broker.snapshots.values()
        for each in snapshot["transactions"]
    ]


def _group(told: dict[str, Any], handler: int) -> Group:
    offsets = [
        _offset(topic, int(partition), each)
        for topic, partitions in told["offsets"].items()
        for partition, each in partitions.items()
    ]
    lags, ages = [each.lag for each in offsets], [each.lag_s for each in offsets]
    return Group(
        id=told["id"],
        kind=told["kind"],
        state=told["state"],
        protocol=told.get("protocol"),
        generation=told.get("generation"),
        since_ms=told.get("since_ms"),
        handler=handler,
        # A sum that misses a part would look better than it is.
        lag=sum(lag for lag in lags if lag is not None) if offsets and None not in lags else None,
        lag_s=max(age for age in ages if age is not None) if offsets and None not in ages else None,
        members=[_member(each) for each in told["members"]],
        offsets=offsets,
    )


def _member(told: dict[str, Any]) -> Member:
    return Member(
        id=told["id"],
        instance_id=told["instance_id"],
        client_id=told["client_id"],
        host=told["host"],
        state=told.get("state"),
        partitions=told["assigned"],
    )


def _offset(topic: str, partition: int, told: dict[str, Any]) -> Offset:
    return Offset(
        topic=topic,
        partition=partition,
        offset=told["offset"],
        end_offset=told.get("end"),
        lag=told.get("lag"),
        lag_s=told.get("lag_s"),
        committed_ms=told.get("commit_ms"),
    )
