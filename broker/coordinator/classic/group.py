"""A classic group: its states and transitions, its members and their common protocols.

Pure: no log, no clock; its timers belong to `protocol` and `rebalance`, which run the group. A group without members
and without a protocol type is a simple group: it only stores offsets.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from rotunda.broker.coordinator.group import (
    CLASSIC,
    CONSUMER_PROTOCOL_TYPE,
    JoinedMember,
    JoinRequest,
    JoinResponse,
    JoinResult,
    SyncResponse,
    SyncResult,
)
from rotunda.broker.coordinator.group_memory import MEMBER_BYTES, TEXT_BYTES, protocols_bytes, texts_bytes
from rotunda.broker.coordinator.records import Record, RecordType
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.messages.consumer_protocol import subscribed_topics
from rotunda.broker.protocol.schema.definitions import Structure
from rotunda.broker.steps import ELEMENTS_AT_ONCE, Steps

if TYPE_CHECKING:
    from rotunda.broker.scheduling.timers import Timer

#: `is_rebalancing`: a member has left since these assignments were made, so a rebalance is required.
GROUP_METADATA: Final = RecordType("GroupMetadata", own_fields="is_rebalancing bool 4+ tag=10000")

_MemberMetadata: Final = GROUP_METADATA.element_class("members")
_VERSION: Final = 3
_VERSION_WITH_TAGS: Final = 4


class GroupState(enum.Enum):
    """Kafka's states, with their names in ListGroups and DescribeGroups."""

    EMPTY = "Empty"
    """No members; may have offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Members have to rejoin."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """All have joined; waiting for the leader's assignment."""
    STABLE = "Stable"
    """All members have their assignment."""
    DEAD = "Dead"
    """The group does not exist."""

    #: Enum's own is a call of Python for each heartbeat.
    __hash__ = object.__hash__


EMPTY, PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE, DEAD = GroupState

#: The valid predecessors of each state.
PREDECESSORS: Final[Mapping[GroupState, frozenset[GroupState]]] = MappingProxyType(
    {
        EMPTY: frozenset({PREPARING_REBALANCE}),
        PREPARING_REBALANCE: frozenset({STABLE, COMPLETING_REBALANCE, EMPTY}),
        COMPLETING_REBALANCE: frozenset({PREPARING_REBALANCE}),
        STABLE: frozenset({COMPLETING_REBALANCE}),
        DEAD: frozenset({STABLE, PREPARING_REBALANCE, COMPLETING_REBALANCE, EMPTY, DEAD}),
    }
)

_NONE: Final = 0


@dataclass(slots=True, eq=False)
class ClassicMember:
    """One member. ``deadline_ns`` is the end of its session; ``timer`` may fire earlier and then checks again."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    #: It has not received a response as a member yet, so its session may expire while its join is parked.
    is_new: bool = False
    deadline_ns: int = 0
    timer: Timer | None = None

    @classmethod
    def joining(cls, member_id: str, request: JoinRequest) -> ClassicMember:
        return cls(
            member_id, request.instance_id, request.client_id, request.client_host, request.rebalance_timeout_ms,
            request.session_timeout_ms, request.protocols, is_new=True,
        )  # fmt: skip

    @classmethod
    def from_record(cls, member: Any, protocol_name: str) -> ClassicMember:
        """Return a member from a GroupMetadataValue. Version 0 has no rebalance timeout."""
        timeout_ms = member.session_timeout
        return cls(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            timeout_ms if member.rebalance_timeout < 0 else member.rebalance_timeout,
            timeout_ms,
            ((protocol_name, member.subscription),),
            member.assignment,
        )

    def renamed(self, member_id: str) -> ClassicMember:
        """Return the same member under another id, for a static member that rejoins."""
        return replace(self, member_id=member_id, is_new=False, deadline_ns=0, timer=None)

    def vote(self, candidates: Collection[str]) -> str | None:
        """Return its first protocol among the candidates."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        return None

    def metadata(self, protocol_name: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def record(self, protocol_name: str | None, assignment: bytes) -> Structure:
        return _MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata(protocol_name),
            assignment=assignment,
        )

    def end_session(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class ClassicGroup:
    """One group. ``members`` is in order of arrival; the first is the leader until it leaves."""

    kind = CLASSIC
    expires = True

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = EMPTY
        self.previous_state = EMPTY
        #: Time of the last state change, on the wall clock; -1 if unknown.
        self.state_ms = -1
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicMember] = {}
        #: Ids assigned to new members that have not joined with them yet, and their expiry.
        self.pending_members: dict[str, Timer] = {}
        #: Members that have joined the current generation and not sent SyncGroup yet.
        self.pending_sync: set[str] = set()
        #: Pending responses by member id: until all have joined, and until the assignment exists.
        self.awaiting_join: dict[str, JoinResponse] = {}
        self.awaiting_sync: dict[str, SyncResponse] = {}
        #: Member ids of static members by instance id.
        self.static_members: dict[str, str] = {}
        #: Start of the current rebalance, on the wall clock; None if there is none, or if unknown.
        self.rebalance_began_ms: int | None = None
        #: A member joined during the group's initial rebalance delay.
        self.new_member_added = False
        #: Loaded from a record written after a departure: the remaining members must rejoin.
        self.must_rebalance = False
        self.join_timer: Timer | None = None
        self.sync_timer: Timer | None = None
        self._supported: dict[str, int] = {}
        self._topics: frozenset[str] | None = None

    @classmethod
    def from_record(cls, group_id: str, value: Any) -> Steps[ClassicGroup]:
        """Return the group of a GroupMetadataValue in steps: stable, or empty if it has no members."""
        name = value.protocol or ""
        members = [ClassicMember.from_record(each, name) for each in value.members]
        group = cls(group_id)
        group.state_ms = value.current_state_timestamp
        group.protocol_name = value.protocol
        group.leader = value.leader
        yield from group.restore(value.protocol_type, value.generation, members)
        group.must_rebalance = value.is_rebalancing and bool(members)
        return group

    def restore(self, protocol_type: str, generation: int, members: Iterable[ClassicMember]) -> Steps[None]:
        """Load these members into the group in steps: stable, or empty without any."""
        known = {each.member_id: each for each in members}
        self.state = self.previous_state = STABLE if known else EMPTY
        self.generation = generation
        if self.leader not in known:
            self.leader = None
        for number, member in enumerate(known.values(), start=1):
            self.add(member, protocol_type)
            if not number % ELEMENTS_AT_ONCE:
                yield
        self.protocol_type = protocol_type or None
        self._topics = self._subscribed_topics()

    def record(self, assignments: Mapping[str, bytes]) -> Record:
        name = self.protocol_name
        members = [each.record(name, assignments.get(each.member_id, b"")) for each in self.members.values()]
        return self._record(_VERSION, members)

    def departure_record(self) -> Record:
        """Return the record of the group after a departure: the remaining members, which must rejoin.

        Members without a response yet are excluded: their join is pending anyway.
        """
        name = self.protocol_name
        left = [each.record(name, each.assignment) for each in self.members.values() if not each.is_new]
        return self._record(_VERSION_WITH_TAGS, left)

    def _record(self, version: int, members: list[Structure]) -> Record:
        value = {
            "protocol_type": self.protocol_type or "",
            "generation": self.generation,
            "protocol": self.protocol_name,
            "leader": self.leader,
            "current_state_timestamp": self.state_ms,
            "members": members,
            "is_rebalancing": version >= _VERSION_WITH_TAGS,
        }
        return GROUP_METADATA.key(group=self.group_id), GROUP_METADATA.value(version, value)

    def tombstones(self) -> list[Record]:
        return [(GROUP_METADATA.key(group=self.group_id), None)]

    # ---- states --------------------------------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is EMPTY

    @property
    def can_rebalance(self) -> bool:
        return self.state in PREDECESSORS[PREPARING_REBALANCE]

    def transition_to(self, state: GroupState, now_ms: int) -> None:
        """Change the state. ValueError for an invalid transition."""
        if self.state not in PREDECESSORS[state]:
            raise ValueError(f"group {self.group_id} cannot go from {self.state.value} to {state.value}")
        self.previous_state, self.state, self.state_ms = self.state, state, now_ms
        if state is PREPARING_REBALANCE and self.rebalance_began_ms is None:
            self.rebalance_began_ms = now_ms

    def end_rebalance(self) -> int | None:
        """Return the duration of the rebalance that has just ended in ms; None if unknown."""
        began_ms, self.rebalance_began_ms = self.rebalance_began_ms, None
        return None if began_ms is None else max(0, self.state_ms - began_ms)

    def begin_generation(self, now_ms: int) -> None:
        """Start the next generation with the joined members, if any."""
        self.generation += 1
        self.pending_sync.clear()
        self.protocol_name = self.select_protocol() if self.members else None
        self._topics = self._subscribed_topics()
        self.transition_to(COMPLETING_REBALANCE if self.members else EMPTY, now_ms)

    # ---- members -------------------------------------------------------------------------------------------------

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        """Add a member with supported protocols; the first becomes the leader and sets the type."""
        if not self.members:
            self.protocol_type = protocol_type or None
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self._count(member, 1)
        pending = self.pending_members.pop(member.member_id, None)
        if pending is not None:
            pending.cancel()

    def remove(self, member_id: str) -> None:
        """Remove a member, or one that has not joined yet; another becomes the leader."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
            member.end_session()
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        pending = self.pending_members.pop(member_id, None)
        if pending is not None:
            pending.cancel()
        self.pending_sync.discard(member_id)

    def update(self, member: ClassicMember, request: JoinRequest) -> None:
        """Update a member from its new JoinGroup."""
        self._count(member, -1)
        member.protocols = request.protocols
        self._count(member, 1)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms

    def replace_static(self, old: ClassicMember, member_id: str) -> ClassicMember:
        """Return a static member that rejoined under another id, in its predecessor's place."""
        member = old.renamed(member_id)
        # In place: the order of members determines the leader.
        self.members = {each.member_id: each for each in (member if m is old else m for m in self.members.values())}
        old.end_session()
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member_id
        if self.leader == old.member_id:
            self.leader = member_id
        self.pending_sync.discard(old.member_id)
        return member

    def dismiss(self, error: ErrorCode) -> None:
        """Cancel all timers and fail pending responses: another coordinator or group takes over."""
        for timer in (self.join_timer, self.sync_timer, *self.pending_members.values()):
            if timer is not None:
                timer.cancel()
        for member in self.members.values():
            member.end_session()
        joins, self.awaiting_join = self.awaiting_join, {}
        syncs, self.awaiting_sync = self.awaiting_sync, {}
        for member_id, join_response in joins.items():
            join_response(JoinResult(error, member_id))
        for sync_response in syncs.values():
            sync_response(SyncResult(error))

    def elect_joined_leader(self) -> bool:
        """Elect a leader that has joined; False if no member has."""
        if self.leader not in self.awaiting_join:
            joined = next((member_id for member_id in self.members if member_id in self.awaiting_join), None)
            if joined is None:
                return False
            self.leader = joined
        return True

    @property
    def all_joined(self) -> bool:
        """Whether all members of the next generation have joined."""
        return not self.pending_members and len(self.awaiting_join) == len(self.members)

    def is_owed(self, member: ClassicMember) -> bool:
        """Return whether a member waits for a response of the group, so that its session cannot expire."""
        member_id = member.member_id
        return not member.is_new and (member_id in self.awaiting_join or member_id in self.awaiting_sync)

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def described_members(self) -> list[JoinedMember]:
        name = self.protocol_name
        return [JoinedMember(each.member_id, each.instance_id, each.metadata(name)) for each in self.members.values()]

    def sizes(self) -> Iterator[int]:
        for member_id in list(self.pending_members):
            yield TEXT_BYTES + MEMBER_BYTES // 4 + len(member_id)
        for member in list(self.members.values()):
            texts = (member.member_id, member.client_id, member.instance_id or "")
            yield MEMBER_BYTES + protocols_bytes(member.protocols) + len(member.assignment) + texts_bytes(texts)

    # ---- protocols -----------------------------------------------------------------------------------------------

    def supports(self, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        """Return whether a member with these protocols is compatible with the present members."""
        if self.state is EMPTY:
            return bool(protocol_type and protocols)
        members = len(self.members)
        return protocol_type == self.protocol_type and any(
            self._supported.get(name, 0) == members for name, _ in protocols
        )

    def select_protocol(self) -> str | None:
        """Return the protocol with most votes among those that all members support."""
        candidates = {name for name, members in self._supported.items() if members == len(self.members)}
        votes: dict[str | None, int] = {}
        for member in self.members.values():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        return max(votes, key=votes.__getitem__, default=None)

    def is_subscribed(self, topic: str) -> bool:
        """Return whether a member reads a topic; if unknown, consumers count as reading all topics."""
        if self._topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self._topics

    # ---- validation of requests ----------------------------------------------------------------------------------

    def validate_member(self, member_id: str, instance_id: str | None) -> int:
        """Return the error of a request by this member: unknown, or fenced by one with the same instance id."""
        if instance_id is not None:
            existing = self.static_members.get(instance_id)
            if existing is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if existing != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return _NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def validate_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, api_version: int, *, transactional: bool
    ) -> int:
        """Return the error of a commit. One without a generation is valid while the group is empty. HOT."""
        del api_version
        if generation < 0 and self.state is EMPTY:
            return _NONE
        if generation >= 0 or member_id or instance_id is not None:
            error = self.validate_member(member_id, instance_id)
            if error:
                return error
            if generation != self.generation:
                return ErrorCode.ILLEGAL_GENERATION
        elif not transactional:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if self.state is COMPLETING_REBALANCE and not transactional:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return _NONE

    def validate_offset_fetch(self, member_id: str | None, epoch: int) -> int:
        """Return no error: offsets of classic groups need no membership."""
        del member_id, epoch
        return _NONE

    def validate_offset_delete(self) -> int:
        """Return NON_EMPTY_GROUP if the members' topics are unknown."""
        return _NONE if self.is_empty or self.protocol_type == CONSUMER_PROTOCOL_TYPE else ErrorCode.NON_EMPTY_GROUP

    def validate_delete(self) -> int:
        return _DELETE_ERRORS[self.state]

    def retained_since_ms(self, commit_ms: int) -> int | None:
        """Return the start of an offset's retention: the commit, or the departure of the last member."""
        if self.protocol_type is None:
            return commit_ms
        if self.state is EMPTY:
            return commit_ms if self.state_ms < 0 else self.state_ms
        if self.protocol_type == CONSUMER_PROTOCOL_TYPE and self._topics is not None and self.state is STABLE:
            return commit_ms
        return None

    def _subscribed_topics(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        # Most subscriptions are equal.
        return subscribed_topics({each.metadata(self.protocol_name) for each in self.members.values()})

    def _count(self, member: ClassicMember, by: int) -> None:
        for name in dict.fromkeys(name for name, _ in member.protocols):
            self._supported[name] = self._supported.get(name, 0) + by
            if not self._supported[name]:
                del self._supported[name]


_DELETE_ERRORS: Final[Mapping[GroupState, int]] = MappingProxyType(
    {
        EMPTY: _NONE,
        PREPARING_REBALANCE: ErrorCode.NON_EMPTY_GROUP,
        COMPLETING_REBALANCE: ErrorCode.NON_EMPTY_GROUP,
        STABLE: ErrorCode.NON_EMPTY_GROUP,
        DEAD: ErrorCode.GROUP_ID_NOT_FOUND,
    }
)

#: The error of a heartbeat in each state, for a member of the current generation.
HEARTBEAT_ERRORS: Final[Mapping[GroupState, int]] = MappingProxyType(
    {
        EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
        PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
        COMPLETING_REBALANCE: _NONE,
        STABLE: _NONE,
        DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)
