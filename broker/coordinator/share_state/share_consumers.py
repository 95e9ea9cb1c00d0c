"""The requests of share consumers, without fetching: validation, sessions and acknowledgements.

Runs in the handler that owns a group's state. ShareFetch and ShareAcknowledge share the epochs of a session. A member
need not be in its group: the group's coordinator decides only which partitions a member fetches from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from rotunda.broker.coordinator.share_state.records import SharePlace
from rotunda.broker.errors import ApiError
from rotunda.broker.metadata.features import SHARE_VERSION
from rotunda.broker.partitions.share.delivery import RENEW
from rotunda.broker.partitions.share.share_session import FINAL_EPOCH, INITIAL_EPOCH, ShareSession
from rotunda.broker.partitions.share.share_window import AcknowledgementBatch
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.security.acl.acls import ResourceType
from rotunda.broker.security.acl.checks import rejection
from rotunda.broker.steps import Steps

if TYPE_CHECKING:
    from rotunda.broker.coordinator.share_state.shard import ShareGroup
    from rotunda.broker.coordinator.share_state.share_state import ShareStateCoordinator
    from rotunda.broker.ipc.request import Request
    from rotunda.broker.metadata.metadata_cache import MetadataCache, TopicInfo
    from rotunda.broker.scheduling.timers import Timers

_LONGEST_MEMBER_ID: Final = 36
_LAST_TYPE_BEFORE_RENEWAL: Final = RENEW - 1

#: Partitions of a session: a response with all of them is made in less than 50 ms.
MOST_PARTITIONS: Final = 12_500

#: Partitions that one step changes: each may write a record, about a millisecond together.
_PARTITIONS_AT_ONCE: Final = 16

#: Error codes by partition; 0 if its acknowledgements were applied.
AcknowledgeErrors = dict[SharePlace, int]


class ShareConsumers:
    """The sessions of the share consumers whose groups this handler owns."""

    def __init__(
        self,
        states: ShareStateCoordinator,
        metadata: MetadataCache,
        has_ended: Callable[[int], bool],
        timers: Timers,
        handlers: int,
    ) -> None:
        """Use ``has_ended(connection id)`` to find closed connections."""
        self._states, self._metadata = states, metadata
        self.has_ended, self._timers, self._handlers = has_ended, timers, handlers
        #: Records acknowledged, by type.
        self.acknowledged = [0] * (RENEW + 1)

    def counters(self) -> dict[str, int]:
        """Return the counters since the start, by metric name."""
        _, accepted, released, rejected, _ = self.acknowledged
        return {
            "share_records_accepted": accepted,
            "share_records_released": released,
            "share_records_rejected": rejected,
        }

    # ---- validation ----------------------------------------------------------------------------------------------

    def validate(self, request: Request, body: Any) -> None:
        """Check a request before its session. Raises ApiError."""
        if not self._metadata.finalized_features.get(SHARE_VERSION, 0):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        if body.group_id is None:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        error = rejection(
            self._metadata.authorizer, request.session, request.api_key, ResourceType.GROUP, body.group_id, None
        )
        if error:
            raise ApiError(error)
        if not body.member_id or len(body.member_id) > _LONGEST_MEMBER_ID:
            raise ApiError(ErrorCode.INVALID_REQUEST)
        self._validate_size(len(body.topics))
        self._validate_size(sum(len(topic.partitions) for topic in body.topics))

    def validate_session(self, session: ShareSession[SharePlace], named: Iterable[SharePlace]) -> None:
        """Check the number of partitions of a session with further ones, which may not exist. Raises ApiError."""
        self._validate_size(len({*session.places, *named}))

    def _validate_size(self, partitions: int) -> None:
        most = min(self._metadata.broker_config.max_partitions, MOST_PARTITIONS)
        if partitions > most:
            reason = f"a share session has at most {most} partitions (max.partitions, and {MOST_PARTITIONS})"
            raise ApiError(ErrorCode.INVALID_REQUEST, reason)

    def topic_of(self, request: Request, place: SharePlace) -> TopicInfo | int:
        """Return the topic of a partition, or the error code of one that the client cannot use."""
        topic = self._metadata.topic_by_id(place.topic_id)
        if topic is None:
            return int(ErrorCode.UNKNOWN_TOPIC_ID)
        authorizer = self._metadata.authorizer
        error = rejection(authorizer, request.session, request.api_key, ResourceType.TOPIC, topic.name, None)
        if error:
            return error
        if not 0 <= place.partition < len(topic.partitions):
            return int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic

    # ---- sessions ------------------------------------------------------------------------------------------------

    def begin_session(
        self, request: Request, body: Any, places: Iterable[SharePlace]
    ) -> tuple[ShareGroup, ShareSession[SharePlace]]:
        """Open the session of a member in place of an earlier one. Raises ApiError.

        Records that the earlier one has acquired stay with the member.
        """
        shard = self._states.shard_of(body.group_id)
        group = shard.groups.get(body.group_id)
        if group is not None:
            group.sessions.pop(body.member_id, None)
        # As with fetch sessions, each handler has an equal share; but all sessions of a group are in one handler.
        config = self._metadata.broker_config
        most = max(-(-config.group_share_max_share_sessions // self._handlers), config.group_share_max_size)
        if self.sessions >= most:
            self._leave_if_unused(group)
            raise ApiError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        group = self._states.group_of(body.group_id)
        session = group.sessions[body.member_id] = ShareSession(body.member_id, request.connection_id, places)
        return group, session

    def find_session(self, body: Any) -> tuple[ShareGroup, ShareSession[SharePlace]]:
        """Return the session that a request continues or closes. Raises ApiError."""
        group = self._states.shard_of(body.group_id).groups.get(body.group_id)
        session = None if group is None else group.sessions.get(body.member_id)
        if group is None or session is None:
            raise ApiError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if body.share_session_epoch not in (FINAL_EPOCH, session.epoch):
            raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        return group, session

    def continue_session(self, body: Any) -> tuple[ShareGroup, ShareSession[SharePlace]]:
        """Return the session of an acknowledgement, which opens none. Raises ApiError."""
        if body.share_session_epoch == INITIAL_EPOCH:
            raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        group, session = self.find_session(body)
        if body.share_session_epoch != FINAL_EPOCH:
            session.rise()
        return group, session

    def _end_session(self, group: ShareGroup, session: ShareSession[SharePlace]) -> Steps[None]:
        """Close a session, and release the records that its member has acquired from the session's partitions.

        A new session of the member gets no records before that.
        """
        member = session.member
        if group.sessions.get(member) is session:
            del group.sessions[member]
        group.releasing[member] += 1
        for number, place in enumerate(list(session.places), 1):
            group.release(member, place)
            if not number % _PARTITIONS_AT_ONCE:
                yield
        group.releasing -= Counter((member,))
        if member in group.sessions:
            group.wake_all()
        self._leave_if_unused(group)

    def end_disconnected(self) -> None:
        """Close the sessions of closed connections. Called periodically."""
        for group in self._states.groups():
            for session in list(group.sessions.values()):
                if self.has_ended(session.connection_id):
                    self._run(self._end_session(group, session))

    @property
    def sessions(self) -> int:
        """Number of open sessions."""
        return sum(len(group.sessions) for group in self._states.groups())

    def _leave_if_unused(self, group: ShareGroup | None) -> None:
        """Drop the windows of a group without sessions: they are read again when they are needed."""
        if group is not None and not group.sessions and not group.releasing:
            self._states.leave(group)

    # ---- acknowledgements ----------------------------------------------------------------------------------------

    def apply(
        self,
        request: Request,
        group: ShareGroup,
        session: ShareSession[SharePlace],
        body: Any,
        done: Callable[[AcknowledgeErrors], None],
    ) -> None:
        """Apply the acknowledgements of a request by partition, then close the session if its epoch is the final one.

        Many partitions are changed over several turns. The errors passed to ``done`` are valid once they are committed.
        """
        self._run(self._apply(request, group, session, body, done))

    def _apply(
        self,
        request: Request,
        group: ShareGroup,
        session: ShareSession[SharePlace],
        body: Any,
        done: Callable[[AcknowledgeErrors], None],
    ) -> Steps[None]:
        last_type = RENEW if body.is_renew_ack else _LAST_TYPE_BEFORE_RENEWAL
        errors: AcknowledgeErrors = {}
        for number, (place, batches) in enumerate(acknowledged_in(body.topics).items(), 1):
            errors[place] = self._acknowledge(request, group, body.member_id, place, batches, last_type)
            if not number % _PARTITIONS_AT_ONCE:
                yield
        if body.share_session_epoch == FINAL_EPOCH:
            yield from self._end_session(group, session)
        done(errors)

    def _run(self, steps: Steps[None]) -> None:
        """Run the first step now, the others in the following turns."""
        for _ in steps:
            self._timers.in_steps(steps)
            return

    def _acknowledge(
        self, request: Request, group: ShareGroup, member: str, place: SharePlace, batches: Any, last_type: int
    ) -> int:
        topic = self.topic_of(request, place)
        if isinstance(topic, int):
            return topic
        read = [AcknowledgementBatch(each.first_offset, each.last_offset, each.acknowledge_types) for each in batches]
        if not are_well_formed(read, last_type):
            return int(ErrorCode.INVALID_REQUEST)
        window = group.windows.get(place)
        if window is None:
            return int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        error = window.acknowledge(member, read, group.terms, self._timers.now_ns())
        if error:
            return error
        counts = group.counts_of(place)
        for batch in read:
            for first, last, kind in batch.runs():
                self.acknowledged[kind] += last - first + 1
                counts.acknowledged(kind, last - first + 1)
        group.changed(place)
        group.watch_locks(place)
        return 0


def are_well_formed(batches: Iterable[AcknowledgementBatch], last_type: int) -> bool:
    """Whether batches are in order, each with a type for all its offsets or one for each."""
    end = -1
    for batch in batches:
        types = batch.types or ()
        if batch.first > batch.last or batch.first < end:
            return False
        if len(types) not in (1, batch.last - batch.first + 1) or not 0 <= min(types) <= max(types) <= last_type:
            return False
        end = batch.last
    return True


def named_in(topics: Iterable[Any]) -> list[SharePlace]:
    """Return the partitions that a request names."""
    return [
        SharePlace(bytes(topic.topic_id), partition.partition_index)
        for topic in topics
        for partition in topic.partitions
    ]


def acknowledged_in(topics: Iterable[Any]) -> dict[SharePlace, Any]:
    """Return the acknowledgement batches of a request by partition."""
    return {
        SharePlace(bytes(topic.topic_id), partition.partition_index): partition.acknowledgement_batches
        for topic in topics
        for partition in topic.partitions
        if partition.acknowledgement_batches
    }
