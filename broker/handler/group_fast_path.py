"""The fast path of the two requests that members of groups send most: heartbeats and commits of offsets. HOT.

Runs in handler processes, in the request loop. What is decided is decided where the general path decides it, in
`apis.groups`; here nothing is made for a request but its answer: no frame, no context, no search for what the request
log gets, which is known on the way. A request that is out of the ordinary is left to the general path.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from struct import Struct
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.apis.groups.offset_commit import ValidatedCommit, is_refused, judge_commit
from broker.coordinator.offsets.commit_memo import CommitFrame, RememberedCommit, topics_at
from broker.coordinator.offsets.commits import Committer, RepeatedCommit
from broker.coordinator.offsets.offsets import CommitTarget
from broker.errors import ApiError
from broker.ipc.request_facts import NO_RECORDS, NO_SUBJECT, subject, tail
from broker.ipc.response_writer import AnswerFacts, ReplyTo, ResponseWriter
from broker.protocol.api_keys import ApiKey
from broker.protocol.messages import heartbeat, offset_commit
from broker.security.acl.acls import ResourceType
from broker.security.acl.checks import refusal

if TYPE_CHECKING:
    from broker.apis.context import BrokerContext
    from broker.coordinator.group_shard import GroupShard
    from broker.handler.commit_answers import CommitAnswers
    from broker.scheduling.slices import Slices
    from broker.security.session import Session

logger = logging.getLogger(__name__)

_HEARTBEAT: Final = int(ApiKey.HEARTBEAT)
_OFFSET_COMMIT: Final = int(ApiKey.OFFSET_COMMIT)
_NEWEST_HEARTBEAT: Final = 4
_OLDEST_COMMIT, _NEWEST_COMMIT = 2, 10

#: Where a request has the length of its client's name, and where the name begins.
_CLIENT_ID_LENGTH, _CLIENT_ID = 8, 10

#: Whatever is shorter is no request.
_SHORTEST: Final = 16

#: Longer requests and answers take the general path.
_LONGEST_HEARTBEAT: Final = 512
_LONGEST_ANSWER: Final = 4096

#: Longer commits take the general path, on which those of very many partitions are taken in slices.
_LONGEST_COMMIT: Final = 16_384

#: How many heartbeats are remembered by their bytes: those of a member are all the same.
_MOST_REMEMBERED: Final = 8192

#: Commits of more partitions are parsed each time; and of how many partitions commits are remembered, for all members.
_MOST_PARTITIONS: Final = 256
_MOST_TARGETS: Final = 32_768

_unpack_int16 = Struct(">h").unpack_from

#: Takes (reply to, version, memory, start, end); False when the request is to take the general path.
Short = Callable[[ReplyTo, int, memoryview, int, int], bool]


class RememberedHeartbeat(NamedTuple):
    """What a member says, and the shard that keeps its group."""

    shard: GroupShard
    request: heartbeat.HeartbeatRequest


class GroupFastPath:
    """The fast path through one handler."""

    def __init__(
        self, broker: BrokerContext, responses: ResponseWriter, slices: Slices, answers: CommitAnswers
    ) -> None:
        self._broker = broker
        self._responses = responses
        self._slices = slices
        self._answers = answers
        self._now_ns = broker.clock.monotonic_ns
        self._groups = broker.coordinators.groups
        self._linger = broker.coordinators.linger
        self._protocols = self._groups.protocols
        self._heartbeats: dict[tuple[int, Session, bytes], RememberedHeartbeat] = {}
        self._heartbeat_tails = [
            tail(_HEARTBEAT, version, broker.partitions.index, NO_SUBJECT) for version in range(_NEWEST_HEARTBEAT + 1)
        ]
        #: By version, then by what a request says in front of its topics.
        self._commits: list[dict[bytes, RememberedCommit]] = [{} for _ in range(_NEWEST_COMMIT + 1)]
        #: Where requests have their topics, by their length.
        self._topics_at: dict[int, int] = {}
        self._targets = 0
        self._commit_facts = lru_cache(_MOST_REMEMBERED)(self._facts_of_a_commit)
        #: By api key.
        self.ways: Mapping[int, Short] = MappingProxyType(
            {_HEARTBEAT: self.heartbeat, _OFFSET_COMMIT: self.commit},
        )

    def heartbeat(self, to: ReplyTo, version: int, view: memoryview, start: int, end: int) -> bool:
        """Take a heartbeat; False if it is to take the general path."""
        if not 0 <= version <= _NEWEST_HEARTBEAT or not _SHORTEST <= end - start <= _LONGEST_HEARTBEAT:
            return False
        # From the client's name on, a member's heartbeats are the same bytes for a whole generation.
        key = version, to[10], bytes(view[start + _CLIENT_ID_LENGTH : end])
        remembered = self._heartbeats.get(key)
        if remembered is not None and not remembered.shard.is_open:
            # Nothing is to keep what was known of a partition that has gone.
            self._heartbeats.clear()
            remembered = None
        is_known = remembered is not None
        if remembered is None:
            remembered = self._read_heartbeat(to[10], version, view, start, end)
            if remembered is None:
                return False
        shard, (group_id, generation, member_id, instance_id) = remembered
        group = shard.groups.get(group_id)
        if group is None or shard.has_failed:
            return False
        error = self._protocols[group.kind].heartbeat(shard, group, member_id, instance_id, generation)
        responses, now_ns = self._responses, self._now_ns()
        if not error:
            if not is_known:
                self._remember_heartbeat(key, remembered)
            at = responses.try_begin(
                to, now_ns, heartbeat.ANSWER_BYTES[version], NO_RECORDS, self._heartbeat_tails[version]
            )
            if at >= 0:
                heartbeat.encode_heartbeat_response_into(responses.view, at, version, to[7], 0)
                return True
        payload = heartbeat.encode_heartbeat_response(version, to[7], heartbeat.HeartbeatResponse(error))
        responses.send(to, now_ns, now_ns, payload, AnswerFacts(error))
        return True

    def _read_heartbeat(
        self, session: Session, version: int, view: memoryview, start: int, end: int
    ) -> RememberedHeartbeat | None:
        """Return what a member says and who keeps its group; None if it is not kept here, or the member may not."""
        body = _body_of(view, start, is_flexible=version >= heartbeat.FIRST_FLEXIBLE)
        if body < 0:
            return None
        request = heartbeat.parse_heartbeat(view, version, body, end)
        authorizer = self._broker.metadata.authorizer
        if refusal(authorizer, session, _HEARTBEAT, ResourceType.GROUP, request.group_id):
            return None
        try:
            return RememberedHeartbeat(self._groups.shard_of(request.group_id), request)
        except ApiError:
            return None

    def _remember_heartbeat(self, key: tuple[int, Session, bytes], remembered: RememberedHeartbeat) -> None:
        """Know a heartbeat by its bytes from now on. Its sender is a member: others may say whatever they like."""
        if len(self._heartbeats) >= _MOST_REMEMBERED:
            self._heartbeats.clear()
        self._heartbeats[key] = remembered

    def commit(self, to: ReplyTo, version: int, view: memoryview, start: int, end: int) -> bool:
        """Take a commit of offsets; False if it is to take the general path."""
        if not self._is_short_and_next(to, version, end - start):
            return False
        key, rest_at, remembered = self._recall(version, view, start, end)
        if remembered is not None and self._commit_again(to, remembered, remembered.offsets(view, rest_at, end)):
            return True
        body = _body_of(view, start, is_flexible=version >= offset_commit.FIRST_FLEXIBLE)
        if body < 0:
            return False
        places: list[int] = []
        request = offset_commit.parse_offset_commit(view, version, body, end, places)
        if is_refused(self._broker, to[10], version, request):
            return False
        judged = judge_commit(self._broker, version, request)
        facts = self._commit_facts(version, judged.row, judged.partitions)
        if judged.shard is None or not judged.records:
            self._answers.answer(to, version, judged.response, judged.error, facts)
            return True
        payload = offset_commit.encode_offset_commit_response(version, to[7], judged.response)
        is_short = not judged.error and len(payload) <= _LONGEST_ANSWER
        if key is not None and is_short:
            self._remember((version, key, to[10]), request, judged, CommitFrame(view, rest_at, end, places))

        def done(error: int) -> None:
            if error:
                refused = offset_commit.refused(request.topics, error)
                self._answers.answer(to, version, refused, error, facts)
            elif is_short:
                self._answers.send_short(to, payload, facts)
            else:
                now_ns = self._now_ns()
                self._responses.send(to, now_ns, now_ns, payload, AnswerFacts(judged.error, about=facts[0]))

        self._linger.connections.add(to[1])
        judged.shard.append(judged.records, self._answers.contained(to, done), patient=True)
        return True

    def _is_short_and_next(self, to: ReplyTo, version: int, size: int) -> bool:
        """Return whether a commit may take the fast path. HOT."""
        # An older commit of this connection may be among what is done in slices.
        is_next = _SHORTEST <= size <= _LONGEST_COMMIT and not self._slices.has(to[1])
        return is_next and _OLDEST_COMMIT <= version <= _NEWEST_COMMIT

    def forget_metadata(self) -> None:
        """Parse the next commit of every member anew: topics, settings or ACLs have changed."""
        if self._broker.metadata.authorizer is not None:
            self._heartbeats.clear()
        for commits in self._commits:
            commits.clear()
        self._targets = 0

    def _recall(
        self, version: int, view: memoryview, start: int, end: int
    ) -> tuple[bytes | None, int, RememberedCommit | None]:
        """Return what a request says in front of its topics, where they begin, and the commit before it. HOT.

        None where what it says takes a closer look, and where there was none like it.
        """
        commits = self._commits[version]
        # They begin where they did in the last request of that length, nearly always, and bytes that have been looked
        # through once say the same wherever they are met.
        rest_at = start + self._topics_at.get(end - start, 0)
        key = bytes(view[start + _CLIENT_ID_LENGTH : rest_at])
        remembered = commits.get(key)
        if remembered is not None:
            return key, rest_at, remembered
        rest_at = topics_at(version, view, start, end)
        if rest_at < 0:
            return None, rest_at, None
        self._topics_at[end - start] = rest_at - start
        key = bytes(view[start + _CLIENT_ID_LENGTH : rest_at])
        return key, rest_at, commits.get(key)

    def _commit_again(self, to: ReplyTo, remembered: RememberedCommit, offsets: Sequence[int] | None) -> bool:
        """Take a commit that differs from one before in its offsets alone (None: it does not); False if not taken."""
        if offsets is None or remembered.session is not to[10]:
            return False
        shard, committer = remembered.shard, remembered.committer
        group = shard.groups.get(committer.group_id)
        if not shard.is_open:
            # Its groups and their offsets have been read back into another: nothing is to hold on to these.
            self.forget_metadata()
            return False
        if group is None or shard.has_failed:
            return False
        if not self._protocols[group.kind].may_commit_again(shard, group, committer):
            return False
        self._linger.connections.add(to[1])
        shard.commit_again(remembered.commit, offsets, self._broker.clock.wall_ms(), (to, remembered))
        return True

    def _remember(
        self,
        key: tuple[int, bytes, Session],
        request: offset_commit.OffsetCommitRequest,
        judged: ValidatedCommit,
        at: CommitFrame,
    ) -> None:
        """Let the member's next commits be compared with this one, of which everything was taken."""
        metadata, (version, committed_by, session) = self._broker.metadata, key
        targets = []
        for name, topic_id, parts in request.topics:
            topic = metadata.topic_by_id(topic_id) if version >= offset_commit.TOPIC_ID_FROM else metadata.topic(name)
            if topic is None:
                return
            targets += [
                CommitTarget(topic.name, partition, leader_epoch, text or "", topic.topic_id)
                for partition, _, leader_epoch, text in parts
            ]
        if judged.shard is None or len(targets) > _MOST_PARTITIONS:
            return
        replaced = self._commits[version].pop(committed_by, None)
        if replaced is not None:
            self._targets -= len(replaced.commit.targets.parts)
        if self._targets + len(targets) > _MOST_TARGETS:
            self.forget_metadata()
        self._targets += len(targets)
        facts = self._commit_facts(version, judged.row, judged.partitions)
        group_id, generation, member_id, instance_id, _, _ = request
        committer = Committer(group_id, member_id, instance_id, generation, version)
        said = request, judged.response
        commit = RepeatedCommit(group_id, targets)
        self._commits[version][committed_by] = RememberedCommit(
            (session, committer), judged.shard, commit, said, at, facts
        )

    def _facts_of_a_commit(self, version: int, row: int, partitions: int) -> tuple[bytes, bytes]:
        about = subject(row, partitions) if partitions else NO_SUBJECT
        return about, tail(_OFFSET_COMMIT, version, self._broker.partitions.index, about)


def _body_of(view: memoryview, start: int, *, is_flexible: bool) -> int:
    """Return where the body of a request begins, or -1 where that takes a closer look."""
    length: int = _unpack_int16(view, start + _CLIENT_ID_LENGTH)[0]
    body = start + _CLIENT_ID + max(0, length)
    if not is_flexible:
        return body
    return -1 if body >= len(view) or view[body] else body + 1
