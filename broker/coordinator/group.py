"""The interface of all groups, and the requests and results of the classic protocol.

Pure; used by the group coordinator and by the APIs. There are three kinds: classic groups, whose leader assigns the
partitions, consumer groups (KIP-848), whose coordinator does, and share groups (KIP-932), whose members share
partitions. Errors are Kafka's codes as numbers, 0 for none: they are checked for every commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from rotunda.broker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from rotunda.broker.coordinator.records import Record

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
SHARE: Final = "share"

#: The protocol type of consumers, for both kinds of group.
CONSUMER_PROTOCOL_TYPE: Final = "consumer"

#: The first versions of OffsetCommit with GROUP_ID_NOT_FOUND and with topic ids, and of TxnOffsetCommit with both.
_GROUP_ID_NOT_FOUND_FROM: Final = 9
TOPIC_ID_FROM: Final = 10
_TXN_TOPIC_ID_FROM: Final = 6

#: Member id and leader when there is none.
NO_MEMBER: Final = ""


class Group(Protocol):
    """A group of any kind."""

    group_id: str

    @property
    def generation(self) -> int:
        """The generation of a classic group, the epoch of another group."""

    @property
    def members(self) -> Mapping[str, object]:
        """The members by id."""

    @property
    def kind(self) -> str:
        """`CLASSIC`, `CONSUMER` or `SHARE`, as ListGroups names it."""

    @property
    def expires(self) -> bool:
        """Whether the group is deleted when it has neither members nor offsets."""

    @property
    def protocol_type(self) -> str | None:
        """The type of the members: consumer, connect, … None for a group that only stores offsets."""

    @property
    def state_name(self) -> str:
        """The state as in ListGroups and the Describe APIs, such as Stable or Empty."""

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""

    def validate_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, api_version: int, *, transactional: bool
    ) -> int:
        """Return the error of a commit by this member and generation or member epoch (-1: by no member)."""

    def validate_offset_fetch(self, member_id: str | None, epoch: int) -> int:
        """Return the error of an OffsetFetch by this member (None: by no member) and epoch."""

    def validate_offset_delete(self) -> int:
        """Return the error of deleting offsets, apart from those of subscribed topics."""

    def validate_delete(self) -> int:
        """Return the error of deleting the group."""

    def is_subscribed(self, topic: str) -> bool:
        """Return whether a member reads the topic, so that its offsets are in use."""

    def retained_since_ms(self, commit_ms: int) -> int | None:
        """Return when the retention of an offset committed at ``commit_ms`` began; None while it is in use."""

    def tombstones(self) -> list[Record]:
        """Return the records that delete the group, apart from its offsets."""

    def sizes(self) -> Iterator[int]:
        """Yield the approximate memory of each of its parts in bytes."""


class Committer(NamedTuple):
    """The sender of a commit: ``generation`` is a member epoch in a consumer group, and -1 without a member."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    api_version: int
    transactional: bool = False

    @property
    def names_ids(self) -> bool:
        """Whether topics have ids instead of names."""
        return self.api_version >= (_TXN_TOPIC_ID_FROM if self.transactional else TOPIC_ID_FROM)

    @property
    def absent_topic(self) -> int:
        """The error of a topic that does not exist."""
        return ErrorCode.UNKNOWN_TOPIC_ID if self.names_ids else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    @property
    def absent_group(self) -> int:
        """The error of a member of a group that does not exist."""
        least = _TXN_TOPIC_ID_FROM if self.transactional else _GROUP_ID_NOT_FOUND_FROM
        return ErrorCode.GROUP_ID_NOT_FOUND if self.api_version >= least else ErrorCode.ILLEGAL_GENERATION

    def known(self, error: int) -> int:
        """Return an error as the clients of this version know it."""
        is_old = self.transactional and not self.names_ids
        return ErrorCode.ILLEGAL_GENERATION if is_old and error == ErrorCode.STALE_MEMBER_EPOCH else error


class JoinRequest(NamedTuple):
    """A JoinGroup, of any version. ``protocols``: (name, metadata) in the member's order of preference."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    reason: str
    needs_member_id: bool
    """Whether a new member first gets an id (KIP-394)."""
    may_skip_assignment: bool
    """Whether the response to a static member can skip the assignment (KIP-814)."""


class JoinedMember(NamedTuple):
    """A member as listed for the leader of the group."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResult(NamedTuple):
    """The result of a JoinGroup."""

    error_code: int
    member_id: str = NO_MEMBER
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER
    skip_assignment: bool = False
    members: Sequence[JoinedMember] = ()


class SyncRequest(NamedTuple):
    """A SyncGroup, of any version. ``assignments``: by member id, empty except from the leader."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: dict[str, bytes]


class SyncResult(NamedTuple):
    """The result of a SyncGroup."""

    error_code: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class LeavingMember(NamedTuple):
    """One member of a LeaveGroup; an administrator identifies static members by instance id only."""

    member_id: str
    instance_id: str | None
    reason: str


JoinResponse = Callable[[JoinResult], None]
SyncResponse = Callable[[SyncResult], None]
LeaveResponse = Callable[[list[int]], None]
