"""Groups and transactions from their handlers' snapshots. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rotunda.web.facts.status import Group, Member, Offset, SharePartition, Transaction

if TYPE_CHECKING:
    from rotunda.web.facts.readings import Reading


def groups_of(now: Reading) -> list[Group]:
    """Return every group, by id."""
    shares: dict[str, list[SharePartition]] = {}
    for snapshot in now.broker.snapshots.values():
        for each in snapshot["share_partitions"]:
            shares.setdefault(each["group"], []).append(_share_partition(each))
    found = [
        _group(each, handler, shares.get(each["id"], []))
        for handler, snapshot in now.broker.snapshots.items()
        for each in snapshot["groups"]
    ]
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


def readers_of(groups: list[Group]) -> dict[str, list[dict[str, Any]]]:
    """Return by topic the groups that read it, with their lag in it; unknown if it is for any partition."""
    found: dict[str, list[dict[str, Any]]] = {}
    for group in groups:
        read = group.share_partitions or group.offsets
        for topic in sorted({each.topic for each in read}):
            lags = [each.lag for each in read if each.topic == topic]
            ages = [each.lag_s for each in read if each.topic == topic]
            found.setdefault(topic, []).append(
                {
                    "group": group.id,
                    "kind": group.kind,
                    "state": group.state,
                    "members": len(group.members),
                    "lag": None if None in lags else sum(lag for lag in lags if lag is not None),
                    "lag_s": None if None in ages else max(age for age in ages if age is not None),
                }
            )
    return found


def _group(published: dict[str, Any], handler: int, shares: list[SharePartition]) -> Group:
    offsets = [
        _offset(topic, int(partition), each)
        for topic, partitions in published["offsets"].items()
        for partition, each in partitions.items()
    ]
    read = shares or offsets
    lags, ages = [each.lag for each in read], [each.lag_s for each in read]
    return Group(
        id=published["id"],
        kind=published["kind"],
        state=published["state"],
        protocol=published.get("protocol"),
        generation=published.get("generation"),
        since_ms=published.get("since_ms"),
        handler=handler,
        # A sum that misses a part would look better than it is.
        lag=sum(lag for lag in lags if lag is not None) if read and None not in lags else None,
        lag_s=max(age for age in ages if age is not None) if read and None not in ages else None,
        members=[_member(each) for each in published["members"]],
        offsets=offsets,
        share_partitions=shares,
    )


def _member(published: dict[str, Any]) -> Member:
    silent_ms, left_ms = published.get("silent_ms"), published.get("session_left_ms")
    return Member(
        id=published["id"],
        instance_id=published["instance_id"],
        client_id=published["client_id"],
        host=published["host"],
        state=published.get("state"),
        partitions=published["assigned"],
        silent_s=None if silent_ms is None else silent_ms / 1000,
        session_left_s=None if left_ms is None else left_ms / 1000,
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


def _share_partition(published: dict[str, Any]) -> SharePartition:
    lock_left_ms = published.get("lock_left_ms")
    return SharePartition(
        topic=published["topic"],
        partition=published["partition"],
        start_offset=published.get("start"),
        end_offset=published.get("end"),
        in_flight=published.get("in_flight"),
        waiting=published.get("waiting"),
        deliveries=published.get("deliveries"),
        lock_left_s=None if lock_left_ms is None else lock_left_ms / 1000,
        lag=published.get("lag"),
        lag_s=published.get("lag_s"),
        locks_expired=published["locks_expired"],
        dead_letters=published["dead_letters"],
    )
