"""The snapshot of a handler's groups and transactions, for the status page and the command line.

Runs in handler processes, in slices, and only while a reader is active. A group's data is of one instant: committed
offsets are read first and log ends afterwards, so no lag is negative. An unknown lag is None, never 0; a lag of 0
records has an age of 0 seconds, however idle the topic.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from rotunda.broker.coordinator.consumer.target_assignment import preferred_assignor
from rotunda.broker.coordinator.group import CLASSIC, CONSUMER, SHARE
from rotunda.broker.coordinator.share import simple_assignor
from rotunda.broker.coordinator.transaction.transaction import AT_REST
from rotunda.broker.errors import ApiError
from rotunda.broker.partitions.committed_lag import committed_lag
from rotunda.broker.protocol.messages.consumer_protocol import decode_assignment

if TYPE_CHECKING:
    from rotunda.broker.coordinator.classic.group import ClassicGroup
    from rotunda.broker.coordinator.consumer.assignment import Assignment
    from rotunda.broker.coordinator.consumer.group import ConsumerGroup
    from rotunda.broker.coordinator.coordinators import Coordinators
    from rotunda.broker.coordinator.group import Group
    from rotunda.broker.coordinator.group_shard import GroupShard
    from rotunda.broker.coordinator.offsets.offsets import CommittedOffset
    from rotunda.broker.coordinator.share.group import ShareGroup
    from rotunda.broker.partitions.lag_age import LagAges
    from rotunda.broker.partitions.partition_manager import PartitionManager
    from rotunda.broker.partitions.share.share_window import ShareWindow
    from rotunda.broker.scheduling.slices import Work
    from rotunda.broker.steps import Steps
    from rotunda.shm.tables.snapshot_buffer import SnapshotWriter, Wants

logger = logging.getLogger(__name__)

INTERVAL_NS: Final = 1_000_000_000

#: Snapshots use at most one part in this many of a handler's time.
TIME_SHARE: Final = 50

#: Longest interval between snapshots: on a busy machine a snapshot is slow because other processes run meanwhile.
MOST_INTERVAL_NS: Final = 10_000_000_000

#: Pause after an error.
FAULT_PAUSE_NS: Final = 60_000_000_000

#: Most entries in one snapshot; the rest is only counted. This bounds the delay of other requests.
MOST_MEMBERS: Final = 2000
MOST_OFFSETS: Final = 4000
MOST_SHARE_PARTITIONS: Final = 4000
MOST_TRANSACTIONS: Final = 500

_NS_PER_MS: Final = 1_000_000

#: Groups, or share partitions, between two yields, and the ranges in the windows of these.
_GROUPS_AT_ONCE: Final = 32
_RANGES_AT_ONCE: Final = 4096

#: The lists that are shortened when a snapshot does not fit.
LISTS: Final = ("groups", "share_partitions", "transactions", "client_metrics")

#: Returns the entries of clients that push metrics, and the number of those left out.
Clients = Callable[[], tuple[list[dict[str, Any]], int]]


def _no_clients() -> tuple[list[dict[str, Any]], int]:
    return [], 0


class GroupStatusPublisher:
    """Publishes the snapshot of one handler."""

    def __init__(
        self,
        coordinators: Coordinators,
        partitions: PartitionManager,
        writer: tuple[SnapshotWriter, Wants],
        times: LagAges,
        begin: Callable[[Work], None],
        now_ns: Callable[[], int],
        clients: Clients = _no_clients,
    ) -> None:
        """Use ``begin`` to run a task in slices; ``clients`` describes those that push metrics."""
        self._coordinators = coordinators
        self._partitions = partitions
        self._metadata = partitions.metadata
        self._writer, self._wants = writer
        self._times = times
        self._begin = begin
        self._now_ns = now_ns
        self._clients = clients
        self._next_ns = 0
        #: By kind of group: the function for its members and its specific fields.
        self._kinds: dict[str, Callable[[Any], dict[str, Any]]] = {
            CLASSIC: self._classic,
            CONSUMER: self._consumer,
            SHARE: self._share,
        }

    def run_once(self, now_ns: int) -> None:
        """Publish a snapshot if a reader wants one and it is due."""
        if now_ns < self._next_ns or self._wants.until_ns() <= now_ns:
            return
        # Not again before this one is finished.
        self._next_ns = now_ns + FAULT_PAUSE_NS
        self._begin(self._publish(now_ns))

    def _publish(self, now_ns: int) -> Work:
        """Build and publish a snapshot. After an error readers have no new snapshot; there is no other effect."""
        try:
            self._writer.publish((yield from self.document()), LISTS, now_ns)
            self._next_ns = now_ns + min(max(INTERVAL_NS, (self._now_ns() - now_ns) * TIME_SHARE), MOST_INTERVAL_NS)
        except Exception:
            logger.exception("cannot publish the snapshot of groups and transactions")

    def document(self) -> Steps[dict[str, Any]]:
        groups: list[dict[str, Any]] = []
        states: Counter[str] = Counter()
        members = offsets = left_out = 0
        self._times.begin()
        for shard in self._coordinators.groups.shards():
            for number, group in enumerate(list(shard.groups.values()), 1):
                if not number % _GROUPS_AT_ONCE:
                    yield
                states[f"{group.kind}/{group.state_name}"] += 1
                if members > MOST_MEMBERS or offsets > MOST_OFFSETS:
                    left_out += 1
                    continue
                entry = self._group(shard, group)
                groups.append(entry)
                members += len(entry["members"])
                offsets += sum(map(len, entry["offsets"].values()))
        share_partitions, other_share_partitions = yield from self._share_partitions()
        self._times.end()
        yield
        transactions, transaction_states, others = self._transactions()
        clients, other_clients = self._clients()
        return {
            "handler": self._partitions.index,
            "group_states": dict(states),
            "transaction_states": transaction_states,
            "groups": groups,
            "share_partitions": share_partitions,
            "transactions": transactions,
            "client_metrics": clients,
            "left_out": {
                "groups": left_out,
                "share_partitions": other_share_partitions,
                "transactions": others,
                "client_metrics": other_clients,
            },
        }

    # ---- groups --------------------------------------------------------------------------------------------------

    def _group(self, shard: GroupShard, group: Group) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "id": group.group_id,
            "kind": group.kind,
            "state": group.state_name,
            "protocol_type": group.protocol_type,
        }
        entry |= self._kinds[group.kind](group)
        entry["offsets"] = {
            topic: {partition: self._offset(topic, partition, each) for partition, each in sorted(partitions.items())}
            for topic, partitions in shard.offsets.of_group(group.group_id).items()
        }
        return entry

    def _classic(self, group: ClassicGroup) -> dict[str, Any]:
        members = [
            {
                "id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.client_host,
                "assigned": _assigned(member.assignment),
                **self._session(None if group.is_owed(member) else member.deadline_ns, member.session_timeout_ms),
            }
            for member in group.members.values()
        ]
        return {
            "protocol": group.protocol_name,
            "generation": group.generation,
            "since_ms": group.state_ms,
            "leader": group.leader,
            "members": members,
        }

    def _consumer(self, group: ConsumerGroup) -> dict[str, Any]:
        members = [
            {
                "id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.client_host,
                "epoch": member.epoch,
                "state": member.state.name.lower(),
                "assigned": self._by_name(member.assigned),
                "to_revoke": self._by_name(member.pending_revocation),
                **self._session(
                    _deadline_ns(group, member.member_id),
                    group.session_timeout_ms if member.classic is None else member.classic.session_timeout_ms,
                ),
            }
            for member in group.members.values()
        ]
        assignors = self._metadata.broker_config.group_consumer_assignors
        assignor = preferred_assignor(group.members.values(), assignors)
        return {"protocol": assignor, "generation": group.epoch, "members": members}

    def _share(self, group: ShareGroup) -> dict[str, Any]:
        members = [
            {
                "id": member.member_id,
                "instance_id": None,
                "client_id": member.client_id,
                "host": member.client_host,
                "epoch": member.epoch,
                "assigned": self._by_name(member.assigned),
                **self._session(_deadline_ns(group, member.member_id), group.session_timeout_ms),
            }
            for member in group.members.values()
        ]
        return {"protocol": simple_assignor.NAME, "generation": group.epoch, "members": members}

    def _session(self, deadline_ns: int | None, timeout_ms: int) -> dict[str, int]:
        """Return the time since a member's last heartbeat and until its session ends; nothing if that cannot end."""
        if deadline_ns is None:
            return {}
        left_ms = (deadline_ns - self._now_ns()) // _NS_PER_MS
        return {"silent_ms": max(0, timeout_ms - left_ms), "session_left_ms": max(0, left_ms)}

    def _share_partitions(self) -> Steps[tuple[list[dict[str, Any]], int]]:
        """Return the share partitions with their state here, and the number of those not listed.

        Their groups may be coordinated by another handler.
        """
        found: list[dict[str, Any]] = []
        left_out = 0
        for shard in self._coordinators.share_states.shards():
            for group_id, states in list(shard.states.items()):
                ranges = _RANGES_AT_ONCE
                for place, state in list(states.items()):
                    if ranges >= _RANGES_AT_ONCE:
                        ranges = 0
                        yield
                    topic = self._metadata.topic_by_id(place.topic_id)
                    if topic is None:
                        continue
                    if len(found) >= MOST_SHARE_PARTITIONS:
                        left_out += 1
                        continue
                    entry = {"group": group_id, "topic": topic.name, "partition": place.partition}
                    window = shard.window(group_id, place, state)
                    ranges += _RANGES_AT_ONCE // _GROUPS_AT_ONCE + window.range_count
                    found.append(entry | self._window(topic.name, place.partition, window) | asdict(state.counts))
        return found, left_out

    def _window(self, topic: str, partition: int, window: ShareWindow) -> dict[str, Any]:
        start = window.start_offset
        if start < 0:  # Not resolved before the first fetch.
            return {}
        entry: dict[str, Any] = {
            "start": start,
            "end": window.next_offset,
            "in_flight": window.in_flight,
            "waiting": window.waiting,
            "deliveries": window.highest_count,
        }
        if (deadline_ns := window.oldest_lock_ns) is not None:
            entry["lock_left_ms"] = max(0, (deadline_ns - self._now_ns()) // _NS_PER_MS)
        lag = committed_lag(self._metadata, self._partitions.table, topic, partition, start)
        if lag is None or lag.oldest is None:
            return entry
        entry["lag"] = records = max(0, lag.end[0] - start - window.complete_count)
        seconds = self._times.age_s((topic, partition, lag.row), lag.oldest, lag.end) if records else 0.0
        if seconds is not None:
            entry["lag_s"] = seconds
        return entry

    def _offset(self, topic: str, partition: int, committed: CommittedOffset) -> dict[str, Any]:
        entry: dict[str, Any] = {"offset": committed.offset, "commit_ms": committed.commit_ms}
        lag = committed_lag(self._metadata, self._partitions.table, topic, partition, committed.offset)
        if lag is None:
            return entry
        entry |= {"start": lag.start, "stable": lag.stable, "end": lag.end[0]}
        if lag.oldest is None:
            return entry
        entry["lag"] = lag.records
        entry["committed_lag"] = lag.committed_records
        seconds = self._times.age_s((topic, partition, lag.row), lag.oldest, lag.end) if lag.records else 0.0
        if seconds is not None:
            entry["lag_s"] = seconds
        return entry

    def _by_name(self, assignment: Assignment) -> dict[str, list[int]]:
        found = {}
        for topic_id, partitions in assignment.items():
            topic = self._metadata.topic_by_id(topic_id)
            found[topic.name if topic is not None else topic_id.hex()] = sorted(partitions)
        return found

    # ---- transactions --------------------------------------------------------------------------------------------

    def _transactions(self) -> tuple[list[dict[str, Any]], dict[str, int], int]:
        """Return the open transactions, the number of ids by state, and the number of open ones not listed."""
        states: Counter[str] = Counter()
        entry: list[dict[str, Any]] = []
        left_out = 0
        for transaction in self._coordinators.transactions.transactions():
            metadata = transaction.metadata
            states[metadata.state.text] += 1
            if metadata.state in AT_REST:
                continue
            if len(entry) >= MOST_TRANSACTIONS:
                left_out += 1
                continue
            entry.append(
                {
                    "id": transaction.transactional_id,
                    "state": metadata.state.text,
                    "producer_id": metadata.producer_id,
                    "epoch": metadata.epoch,
                    "start_ms": metadata.start_ms,
                    "timeout_ms": metadata.timeout_ms,
                    "partitions": _by_topic(sorted(metadata.partitions)),
                }
            )
        return entry, dict(states), left_out


def _deadline_ns(group: ConsumerGroup | ShareGroup, member_id: str) -> int | None:
    session = group.sessions.get(member_id)
    return None if session is None else session.deadline_ns


def _assigned(assignment: bytes) -> dict[str, list[int]] | None:
    """Return the partitions of an assignment; None if only its members can decode it."""
    try:
        return {topic: sorted(partitions) for topic, partitions in decode_assignment(assignment).items()}
    except ApiError:
        return None


def _by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return found
