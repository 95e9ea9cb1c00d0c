"""Groups and transactions from their handlers' snapshots. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rotunda.web.facts.status import Group, Member, Offset, Transaction

if TYPE_CHECKING:
    from rotunda.web.facts.readings import Reading


def groups_of(now: Reading) -> list[Group]:
    """Return every group, by id."""
    found = [_group(each, handler) for handler, snapshot in now.broker.snapshots.items() for each in snapshot["groups"]]
    return sorted(found, key=lambda group: group.id)


def transactions_of(now: Reading) -> list[Transaction]:
    """Return the ongoing transactions."""
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


def _group(published: dict[str, Any], handler: int) -> Group:
    offsets = [
        _offset(topic, int(partition), each)
        for topic, partitions in published["offsets"].items()
        for partition, each in partitions.items()
    ]
    lags, ages = [each.lag for each in offsets], [each.lag_s for each in offsets]
    return Group(
        id=published["id"],
        kind=published["kind"],
        state=published["state"],
        protocol=published.get("protocol"),
        generation=published.get("generation"),
        since_ms=published.get("since_ms"),
        handler=handler,
        # A sum that misses a part would look better than it is.
        lag=sum(lag for lag in lags if lag is not None) if offsets and None not in lags else None,
        lag_s=max(age for age in ages if age is not None) if offsets and None not in ages else None,
        members=[_member(each) for each in published["members"]],
        offsets=offsets,
    )


def _member(published: dict[str, Any]) -> Member:
    return Member(
        id=published["id"],
        instance_id=published["instance_id"],
        client_id=published["client_id"],
        host=published["host"],
        state=published.get("state"),
        partitions=published["assigned"],
    )


def _offset(topic: str, partition: int, published: dict[str, Any]) -> Offset:
    return Offset(
        topic=topic,
        partition=partition,
        offset=published["offset"],
        end_offset=published.get("end"),
        lag=published.get("lag"),
        lag_s=published.get("lag_s"),
        committed_ms=published.get("commit_ms"),
    )
