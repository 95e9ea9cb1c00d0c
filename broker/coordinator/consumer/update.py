"""The updates of a KIP-848 group: the three steps of a heartbeat, and the removal of members.

Pure. First the member is updated from its request, and the group's epoch rises if any member's topics have changed.
Then, if it has risen, the target assignment of all members is computed again. Then this member makes one step towards
its target. Each change of memory appends its record, in the same order, so that loading the log restores the same
group.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from rotunda.broker.coordinator.consumer.assignment import NO_PARTITIONS, Assignment
from rotunda.broker.coordinator.consumer.group import ConsumerGroup, Subscription
from rotunda.broker.coordinator.consumer.heartbeat import (
    Client,
    check_epoch,
    dynamic_member,
    static_member,
    updated_member,
)
from rotunda.broker.coordinator.consumer.member import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroupMember,
    MemberState,
    Report,
    Target,
    reconcile,
    since_after,
)
from rotunda.broker.coordinator.consumer.records import (
    ResolvedRegex,
    current_member_record,
    member_record,
    member_tombstones,
    regex_record,
    regex_tombstone,
    target_member_record,
    target_record,
)
from rotunda.broker.coordinator.consumer.target_assignment import (
    Topics,
    compute_target,
    existing,
    metadata_hash,
    preferred_assignor,
)
from rotunda.broker.coordinator.consumer.topic_patterns import NO_MATCHES, Matches
from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from rotunda.broker.coordinator.coordinator_log import Done
    from rotunda.broker.coordinator.group_shard import GroupShard
    from rotunda.broker.coordinator.records import Record

logger = logging.getLogger(__name__)


class Environment(NamedTuple):
    """The environment of a group: the topics, the assignors in order of preference, the time (ms since the epoch)."""

    topics: Topics
    assignors: Sequence[str]
    wall_ms: int
    matches: Matches = NO_MATCHES
    """The topics of the group's patterns, as resolved for this update."""


class GroupUpdate:
    """Changes of one group, and their records, which are written together."""

    def __init__(self, group: ConsumerGroup, environment: Environment) -> None:
        self._group = group
        self._environment = environment
        self.records: list[Record] = []
        self._counts: dict[Subscription, Mapping[bytes, int]] = {}

    def member_for(self, request: Any) -> ConsumerGroupMember:
        """Return the member that sends a request, possibly a new one. Raises ApiError if the request is invalid."""
        group = self._group
        if request.member_epoch != JOIN_EPOCH:
            member = (
                dynamic_member(group, request.member_id)
                if request.instance_id is None
                else static_member(group, request)
            )
        elif request.instance_id in group.static_members:
            return self._rejoining(group.members[group.static_members[request.instance_id]], request)
        else:
            # A member that joins again has dropped its partitions, for instance after an error, and restarts.
            return group.members.get(request.member_id) or ConsumerGroupMember(request.member_id)
        check_epoch(member, request)
        return member

    def heartbeat(
        self, member: ConsumerGroupMember, request: Any, client: Client, owned: Assignment | None
    ) -> ConsumerGroupMember:
        """Apply a valid heartbeat to the group, and return the member after it."""
        updated = self._group.with_shared_names(updated_member(member, request, client))
        joins = request.member_epoch == JOIN_EPOCH
        moves = joins or request.member_epoch == member.epoch
        return self.apply(member, updated, Report(owned, is_settled=joins), moves=moves)

    def apply(
        self, member: ConsumerGroupMember, updated: ConsumerGroupMember, report: Report, *, moves: bool = True
    ) -> ConsumerGroupMember:
        """Apply a member's report and return the updated member; with ``moves`` it is reconciled by one step."""
        group = self._group
        is_new = member.member_id not in group.members
        if is_new or updated != member:
            self.records.append(member_record(group.group_id, updated))
        group.put_member(updated)
        names_changed = is_new or updated.topic_names != member.topic_names
        regex_changed = self._refresh_regexes(updated.topic_regex != member.topic_regex)
        changed = names_changed or updated.topic_regex != member.topic_regex
        self._refresh_epoch(must_rise=changed or regex_changed)
        if group.is_to_be_assigned(self._environment.wall_ms):
            self._make_target()
        if moves:
            updated = self._reconcile(updated, report._replace(subscription_changed=changed))
        return updated

    def remove(self, member: ConsumerGroupMember) -> None:
        """Remove a member and raise the epoch."""
        group = self._group
        self.records += member_tombstones(group.group_id, member.member_id)
        group.remove_member(member.member_id)
        self._refresh_regexes(bool(member.topic_regex))
        group.metadata_hash = metadata_hash(self._partition_counts())
        self.records.append(group.raise_epoch())

    def replace_static_member(self, known: ConsumerGroupMember, member_id: str) -> ConsumerGroupMember:
        """Return the member with another id that replaces a static member."""
        self.records += self._group.replace_static_member(known, member_id)
        return self._group.members[member_id]

    def refresh(self) -> None:
        """Check the topics, and raise the epoch if they have changed."""
        changed = self._refresh_regexes(subscription_changed=False)
        self._refresh_epoch(must_rise=changed)

    def leave_for_a_while(self, member: ConsumerGroupMember) -> ConsumerGroupMember:
        """Mark a static member as absent; its target is reserved until it rejoins or its session expires."""
        left = replace(
            member,
            epoch=LEAVE_STATIC_EPOCH,
            state=MemberState.STABLE,
            pending_revocation=NO_PARTITIONS,
            assigned_since=since_after(member, LEAVE_STATIC_EPOCH, member.assigned, NO_PARTITIONS),
        )
        self._group.put_member(left)
        self.records.append(current_member_record(self._group.group_id, left))
        return left

    def commit(self, shard: GroupShard, before: Sequence[Record], done: Done) -> None:
        """Write ``before`` and the changes; ``done`` is called after the commit of these and all earlier records."""
        self._group.commit(shard, [*before, *self.records], done)

    def _rejoining(self, known: ConsumerGroupMember, request: Any) -> ConsumerGroupMember:
        """Return the static member that replaces the previous one with its instance id."""
        if known.epoch != LEAVE_STATIC_EPOCH:
            if known.member_id == request.member_id and known.previous_epoch == JOIN_EPOCH:
                # The same request again.
                return known
            if known.classic is not None:
                return self.replace_static_member(known, request.member_id)
            raise ApiError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {request.member_id} with instance id {request.instance_id} cannot join the group "
                f"because the instance id is owned by {known.member_id} member.",
            )
        return self.replace_static_member(known, request.member_id)

    def _refresh_regexes(self, subscription_changed: bool) -> bool:
        """Apply the resolved patterns of the group's members; return whether their topics have changed."""
        group, matches = self._group, self._environment.matches
        if not (subscription_changed or matches.names):
            return False
        used = group.patterns()
        for regex in group.regexes.keys() - used:
            del group.regexes[regex]
            self.records.append(regex_tombstone(group.group_id, regex))
        changed = False
        for regex in sorted(used & matches.names.keys()):
            names = matches.names[regex]
            known = group.regexes.get(regex)
            if known is None or known.topic_names != names:
                resolved = ResolvedRegex(names, matches.version, self._environment.wall_ms)
                group.regexes[regex] = resolved
                self.records.append(regex_record(group.group_id, regex, resolved))
                changed = True
        return changed

    def _refresh_epoch(self, *, must_rise: bool) -> None:
        """Raise the epoch if required, or if topics were created, deleted or extended."""
        group = self._group
        if not (must_rise or group.is_stale):
            return
        found = metadata_hash(self._partition_counts())
        group.is_stale = not self._are_patterns_resolved()
        if must_rise or found != group.metadata_hash:
            group.metadata_hash = found
            self.records.append(group.raise_epoch())

    def _are_patterns_resolved(self) -> bool:
        group, (version, names) = self._group, self._environment.matches
        known = names.keys() if group.is_stale else names.keys() | group.regexes.keys()
        return group.patterns() <= known and (not names or version == self._environment.topics.version)

    def _partition_counts(self) -> Mapping[bytes, int]:
        """Return the number of partitions of every subscribed topic that exists, by id."""
        subscriptions = self._group.subscriptions()
        if len(subscriptions) == 1:
            return self._counts_of(*subscriptions)
        names = frozenset[str]().union(*map(self._group.topic_names, subscriptions))
        return existing(self._environment.topics, names)

    def _counts_of(self, subscription: Subscription) -> Mapping[bytes, int]:
        """Return the partition counts of one subscription. Its topics are looked up once per update."""
        found = self._counts.get(subscription)
        if found is None:
            names = self._group.topic_names(subscription)
            found = self._counts[subscription] = existing(self._environment.topics, names)
        return found

    def _make_target(self) -> None:
        """Compute the target of every member, and record the changed ones."""
        group = self._group
        members = list(group.members.values())
        assignor = preferred_assignor(members, self._environment.assignors)
        target = compute_target(
            assignor,
            members,
            {member.member_id: self._counts_of((member.topic_names, member.topic_regex)) for member in members},
            group.target,
        )
        for member_id, assignment in target.items():
            if group.target.get(member_id) != assignment:
                self.records.append(target_member_record(group.group_id, member_id, assignment))
        group.target = target
        group.assignment_epoch = group.epoch
        group.assigned_wall_ms = self._environment.wall_ms
        self.records.append(target_record(group.group_id, group.epoch))
        logger.debug("group %s: %s assigned for epoch %d", group.group_id, assignor, group.epoch)

    def _reconcile(self, member: ConsumerGroupMember, report: Report) -> ConsumerGroupMember:
        group = self._group
        if member.is_reconciled_to(group.assignment_epoch) and not report.subscription_changed:
            return member
        topic_ids = self._counts_of((member.topic_names, member.topic_regex)).keys()
        target = Target(group.assignment_epoch, group.target.get(member.member_id, NO_PARTITIONS), frozenset(topic_ids))
        moved = reconcile(member, target, report, group.is_free)
        if moved is not member:
            group.put_member(moved)
            self.records.append(current_member_record(group.group_id, moved))
        return moved
