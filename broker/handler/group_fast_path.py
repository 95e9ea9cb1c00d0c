"""The fast path of the two most frequent requests of group members: heartbeats and offset commits. HOT.

Runs in handler processes, in the request loop. Decisions are made by the same code as on the general path, in
`apis.groups`. This path only avoids per-request objects: it builds the response and no frame or context, and it has the
request log's facts already. Unusual requests are left to the general path.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from struct import Struct
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rotunda.broker.apis.groups.offset_commit import committer_of, is_rejected, rejected
from rotunda.broker.coordinator.offsets.cached_commit import CachedCommit
from rotunda.broker.coordinator.offsets.commits import NO_RETENTION, RepeatedCommit, commit_offsets, find_topic
from rotunda.broker.coordinator.offsets.offsets import CommitPartition
from rotunda.broker.errors import ApiError
from rotunda.broker.ipc.request import Request
from rotunda.broker.ipc.request_facts import NO_RECORDS, NO_SUBJECT, subject, tail
from rotunda.broker.ipc.response_writer import ResponseFacts, ResponseWriter
from rotunda.broker.partitions.request_cache import PREFIX_START, CachedFields, RequestCache, RequestCaches
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey, is_flexible
from rotunda.broker.security.acl.acls import ResourceType
from rotunda.broker.security.acl.checks import rejection

if TYPE_CHECKING:
    from rotunda.broker.apis.context import BrokerContext
    from rotunda.broker.coordinator.group_shard import GroupShard
    from rotunda.broker.scheduling.slices import Slices

logger = logging.getLogger(__name__)

_HEARTBEAT: Final = int(ApiKey.HEARTBEAT)
_OFFSET_COMMIT: Final = int(ApiKey.OFFSET_COMMIT)
_NEWEST_HEARTBEAT: Final = 4
_OLDEST_COMMIT, _NEWEST_COMMIT = 2, 10

#: Offset of the client id in a request, after its length.
_CLIENT_ID: Final = PREFIX_START + 2

#: Shorter frames are invalid requests.
_SHORTEST: Final = 16

#: Longer requests use the general path.
_LONGEST_HEARTBEAT: Final = 512

#: Longer commits use the general path, which splits commits of very many partitions into slices.
_LONGEST_COMMIT: Final = 16_384

#: Commits of more partitions are not cached.
_MOST_PARTITIONS: Final = 256

#: Facts for the request log that commits share.
_MOST_FACTS: Final = 8192

_unpack_int16 = Struct(">h").unpack_from

#: Responses to heartbeats without an error, by version.
_HEARTBEAT_RESPONSES: Final = tuple(
    [codec.encode_response(_HEARTBEAT, version, 0, {}) for version in range(_NEWEST_HEARTBEAT + 1)]
)

#: Handles a request; False if it must use the general path.
Short = Callable[[Request], bool]


class CachedHeartbeat(CachedFields):
    """A member's heartbeat, and the shard that owns its group. Nothing varies within a generation."""

    __slots__ = ("body", "shard")

    entry_bytes = 1280

    def __init__(self, request: Request, shard: GroupShard, body: Any) -> None:
        super().__init__(request)
        self.shard, self.body = shard, body


class WrittenResponse(NamedTuple):
    """The response to a commit whose records are written, and its first error."""

    payload: bytes
    error: int
    facts: tuple[bytes, bytes]
    """The subject, and the envelope tail that contains it."""


class CommitResponses:
    """Sends the responses to commits of the fast path once their records are written; a fault closes the connection."""

    def __init__(self, responses: ResponseWriter, now_ns: Callable[[], int]) -> None:
        self._responses = responses
        self._now_ns = now_ns

    def send_repeated(self, committers: list[tuple[Request, CachedCommit]], error: int) -> None:
        """Send the responses to commits that matched a cached one. HOT."""
        responses, now_ns = self._responses, self._now_ns()
        view, try_begin = responses.view, responses.try_begin
        for request, cached in committers:
            try:
                about, end = cached.facts
                if error:
                    self.send_now(request, rejected(cached.topics, error), error, cached.facts)
                    continue
                at = try_begin(request, now_ns, cached.response_bytes, NO_RECORDS, end)
                if at >= 0:
                    cached.encode_into(view, at, request.correlation_id)
                else:
                    wire = cached.encode(request.correlation_id)
                    responses.send(request, now_ns, now_ns, wire, ResponseFacts(about=about))
            except Exception:
                self._fault(request)

    def send_now(
        self,
        request: Request,
        response: dict[str, Any],
        error: int,
        facts: tuple[bytes, bytes],
    ) -> None:
        """Send the response to a commit; ``facts``: the subject, and the envelope tail that contains it."""
        payload = codec.encode_response(_OFFSET_COMMIT, request.api_version, request.correlation_id, response)
        now_ns = self._now_ns()
        self._responses.send(request, now_ns, now_ns, payload, ResponseFacts(error, about=facts[0]))

    def send_first(self, request: Request, topics: Sequence[Any], written: WrittenResponse, error: int) -> None:
        """Send the response to a commit that matched no cached one, or the error of its write; raises nothing."""
        try:
            if error:
                self.send_now(request, rejected(topics, error), error, written.facts)
            else:
                now_ns, facts = self._now_ns(), ResponseFacts(written.error, about=written.facts[0])
                self._responses.send(request, now_ns, now_ns, written.payload, facts)
        except Exception:
            self._fault(request)

    def _fault(self, request: Request) -> None:
        """Close the connection of a commit whose response failed; the rest of its batch is not affected."""
        logger.exception("closing the connection of an offset commit, its response failed")
        self._responses.close_connection(request, self._now_ns())


class GroupFastPath:
    """The fast path through one handler."""

    def __init__(
        self,
        broker: BrokerContext,
        responses: ResponseWriter,
        slices: Slices,
        commit_responses: CommitResponses,
        caches: RequestCaches,
    ) -> None:
        self._broker = broker
        self._responses = responses
        self._slices = slices
        self._commit_responses = commit_responses
        self._now_ns = broker.clock.monotonic_ns
        self._groups = broker.coordinators.groups
        self._linger = broker.coordinators.linger
        self._protocols = self._groups.protocols
        self._heartbeats: RequestCache[CachedHeartbeat] = caches.open(is_whole=True)
        #: By api key, those of requests that compiled code may handle.
        self.caches: Mapping[int, RequestCache[Any]] = MappingProxyType({_HEARTBEAT: self._heartbeats})
        self._heartbeat_tails = [
            tail(_HEARTBEAT, version, broker.partitions.index, NO_SUBJECT) for version in range(_NEWEST_HEARTBEAT + 1)
        ]
        self._commits: RequestCache[CachedCommit] = caches.open()
        self._commit_facts = lru_cache(_MOST_FACTS)(self._facts_of_a_commit)
        #: By api key.
        self.fast_paths: Mapping[int, Short] = MappingProxyType(
            {_HEARTBEAT: self.heartbeat, _OFFSET_COMMIT: self.commit},
        )

    def heartbeat(self, request: Request) -> bool:
        """Handle a heartbeat; False if it must use the general path."""
        version = request.api_version
        if not 0 <= version <= _NEWEST_HEARTBEAT or not _SHORTEST <= request.end - request.start <= _LONGEST_HEARTBEAT:
            return False
        found = self._heartbeats.find(request)
        if found is not None and not found[0].shard.is_open:
            # The shard was closed: drop everything that refers to it.
            self._heartbeats.clear()
            found = None
        cached = found[0] if found is not None else self._read_heartbeat(request)
        if cached is None or (error := self._extend_session(cached.shard, cached.body)) is None:
            return False
        responses, now_ns = self._responses, self._now_ns()
        if not error:
            response = _HEARTBEAT_RESPONSES[version], self._heartbeat_tails[version]
            if found is None:
                # Cache members only: a non-member could fill the cache with arbitrary ids.
                self._heartbeats.keep(request.connection_id, cached)
            elif cached.known is None:
                cached.repeat(*response, partial(self._again, cached.shard, cached.body))
            if responses.try_repeat(request, now_ns, *response):
                return True
        payload = codec.encode_response(_HEARTBEAT, version, request.correlation_id, {"error_code": error})
        responses.send(request, now_ns, now_ns, payload, ResponseFacts(error))
        return True

    def _extend_session(self, shard: GroupShard, body: Any) -> int | None:
        """Return the error of a heartbeat; None if it must use the general path. HOT."""
        group = shard.groups.get(body.group_id)
        if group is None or shard.has_failed:
            return None
        heartbeat = self._protocols[group.kind].heartbeat
        return heartbeat(shard, group, body.member_id, body.group_instance_id, body.generation_id)

    def _again(self, shard: GroupShard, body: Any, response: bytes) -> bytes | None:
        """Return the response to a repeated heartbeat, if it has no error (`CachedFields.repeat`). HOT."""
        return response if shard.is_open and self._extend_session(shard, body) == 0 else None

    def _read_heartbeat(self, request: Request) -> CachedHeartbeat | None:
        """Return a member's heartbeat and its group's shard; None if that is not here or the member is denied."""
        version, view, start, end = request.api_version, request.view, request.start, request.end
        body_at = _body_of(view, start, is_flexible=is_flexible(_HEARTBEAT, version))
        if body_at < 0:
            return None
        body = codec.decode(_HEARTBEAT, version, view, body_at, end)
        authorizer = self._broker.metadata.authorizer
        if rejection(authorizer, request.session, _HEARTBEAT, ResourceType.GROUP, body.group_id):
            return None
        try:
            shard = self._groups.shard_of(body.group_id)
        except ApiError:
            return None
        return CachedHeartbeat(request, shard, body)

    def commit(self, request: Request) -> bool:
        """Handle an offset commit; False if it must use the general path."""
        version, view, start, end = request.api_version, request.view, request.start, request.end
        # An older commit of this connection may still be running in slices.
        is_next = _SHORTEST <= end - start <= _LONGEST_COMMIT and not self._slices.has(request.connection_id)
        if not is_next or not _OLDEST_COMMIT <= version <= _NEWEST_COMMIT:
            return False
        found = self._commits.find(request)
        if found is not None and self._commit_again(request, *found):
            return True
        body_at = _body_of(view, start, is_flexible=is_flexible(_OFFSET_COMMIT, version))
        if body_at < 0:
            return False
        body, places = codec.decode_and_locate(_OFFSET_COMMIT, version, view, body_at, end)
        authorizer = self._broker.metadata.authorizer
        if authorizer is not None and is_rejected(self._broker, authorizer, request.session, version, body):
            return False
        committer = committer_of(body, version)
        validated = commit_offsets(self._groups, committer, body.topics, body.retention_time_ms)
        facts = self._commit_facts(version, validated.row, validated.partitions)
        if validated.shard is None or not validated.records:
            self._commit_responses.send_now(request, validated.response, validated.error, facts)
            return True
        payload = codec.encode_response(_OFFSET_COMMIT, version, request.correlation_id, validated.response)
        is_plain = not validated.error and body.retention_time_ms == NO_RETENTION
        if is_plain and validated.partitions <= _MOST_PARTITIONS:
            cached = CachedCommit(request, places, committer, validated.shard, (body.topics, payload), facts)
            self._commits.keep(request.connection_id, cached)
        written = WrittenResponse(payload, validated.error, facts)
        done = partial(self._commit_responses.send_first, request, body.topics, written)
        self._linger.connections.add(request.connection_id)
        validated.shard.append(validated.records, done, patient=True)
        return True

    def _commit_again(self, request: Request, cached: CachedCommit, offsets: Sequence[int]) -> bool:
        """Handle a commit that differs from a cached one in its offsets only; False if not handled. HOT."""
        shard, committer = cached.shard, cached.committer
        group = shard.groups.get(committer.group_id)
        if not shard.is_open:
            # Its groups and offsets are loaded into another shard: drop everything that refers to this one.
            self._commits.clear()
            return False
        if group is None or shard.has_failed:
            return False
        if not self._protocols[group.kind].may_commit_again(shard, group, committer):
            return False
        repeated = cached.repeated
        if repeated is None:
            partitions = self._partitions(cached)
            if len(partitions) != len(offsets):
                return False
            repeated = cached.repeated = RepeatedCommit(committer.group_id, partitions)
        self._linger.connections.add(request.connection_id)
        shard.commit_again(repeated, offsets, self._broker.clock.wall_ms(), (request, cached))
        return True

    def _partitions(self, cached: CachedCommit) -> list[CommitPartition]:
        """Return the partitions of a cached commit that still exist.

        The cache is cleared when the metadata have changed; while they change, a topic may be missing already.
        """
        metadata, committer = self._broker.metadata, cached.committer
        return [
            CommitPartition(
                topic.name,
                part.partition_index,
                part.committed_leader_epoch,
                part.committed_metadata or "",
                topic.topic_id,
            )
            for named in cached.topics
            if (topic := find_topic(metadata, committer, named)) is not None
            for part in named.partitions
            if part.partition_index < len(topic.partitions)
        ]

    def _facts_of_a_commit(self, version: int, row: int, partitions: int) -> tuple[bytes, bytes]:
        about = subject(row, partitions) if partitions else NO_SUBJECT
        return about, tail(_OFFSET_COMMIT, version, self._broker.partitions.index, about)


def _body_of(view: memoryview, start: int, *, is_flexible: bool) -> int:
    """Return the offset of a request's body, or -1 if its header needs full parsing."""
    length: int = _unpack_int16(view, start + PREFIX_START)[0]
    body = start + _CLIENT_ID + max(0, length)
    if not is_flexible:
        return body
    return -1 if body >= len(view) or view[body] else body + 1
