"""Rejections of Produce parts before their records are read: denied or unknown topics, invalid acks, closed logs.

Runs in handler processes. An appended batch is not rejected: its client would send it again. So a part that a
predecessor accepted and appended is acknowledged, even if ACLs have changed; a part that it did not append is checked
again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rotunda.broker.log.validation.append_limits import AppendLimits
from rotunda.broker.partitions.produce.append_notes import NOT_APPENDED, note_rejection, noted_place
from rotunda.broker.partitions.produce.produce import is_transactional
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.records.record_batch import BATCH_HEADER_BYTES
from rotunda.broker.security.acl.acls import ResourceType
from rotunda.broker.security.acl.checks import rejection

if TYPE_CHECKING:
    from rotunda.broker.ipc.request import Request
    from rotunda.broker.metadata.metadata_cache import TopicInfo
    from rotunda.broker.partitions.partition_manager import PartitionManager
    from rotunda.broker.protocol.messages.produce import Part, ProduceRequest
    from rotunda.broker.security.session import Session

_PRODUCE = int(ApiKey.PRODUCE)


class ProduceClient(NamedTuple):
    """The client of a request, and the properties common to its parts."""

    acks: int
    client_id: str
    session: Session
    error: int
    """The error of all parts, or 0."""


class PartChecks:
    """Validates the parts of one handler's requests."""

    def __init__(self, partitions: PartitionManager) -> None:
        self._partitions = partitions
        self._metadata = partitions.metadata

    def topic(self, part: Part) -> TopicInfo | None:
        """Return the topic of a part, if it exists."""
        metadata = self._metadata
        if part.topic_name is not None:
            return metadata.topic(part.topic_name)
        return metadata.topic_by_id(part.topic_id or b"")

    def unknown(self, part: Part) -> int:
        """Return the error of a part for a nonexistent partition, or 0."""
        topic = self.topic(part)
        if topic is not None and 0 <= part.partition < len(topic.partitions):
            return 0
        unknown_id = part.topic_name is None and topic is None
        return int(ErrorCode.UNKNOWN_TOPIC_ID if unknown_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def is_slow(self, part: Part) -> bool:
        """Return whether validating a part's records before the append may be slow."""
        topic = self.topic(part)
        return topic is not None and AppendLimits.is_slow(self._metadata.log_config(topic), part.records_size)

    def client(self, request: Request, body: ProduceRequest, client_id: str) -> ProduceClient:
        """Return the client of a request."""
        return ProduceClient(body.acks, client_id, request.session, self._of_transaction(request, body))

    def _of_transaction(self, request: Request, body: ProduceRequest) -> int:
        """Return the error for all parts if the client may not write in that transaction, or 0."""
        authorizer, name = self._metadata.authorizer, body.transactional_id
        if authorizer is None or not any(
            part.records_size >= BATCH_HEADER_BYTES and is_transactional(request.view, part.records_offset)
            for part in body.parts
        ):
            return 0
        if name is None:
            return int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return rejection(authorizer, request.session, _PRODUCE, ResourceType.TRANSACTIONAL_ID, name)

    def of(self, part: Part, client: ProduceClient) -> int:
        """Return the error that rejects a part before any other check, or 0 (``E20``)."""
        acks, client_id, session, error = client
        if session.is_faulty:
            error = error or self._injected(part, session)
        if error or (self._metadata.authorizer is not None and (error := self._forbidden(part, session))):
            return error
        if acks not in (-1, 0, 1):
            return int(ErrorCode.INVALID_REQUIRED_ACKS)
        topic = self.topic(part)
        unknown = self.unknown(part)
        if topic is None or unknown:
            return unknown
        if topic.internal and client_id != "__admin_client":
            return int(ErrorCode.INVALID_TOPIC_EXCEPTION)
        if acks == -1 and self._metadata.log_config(topic).min_insync_replicas > 1:
            return 0 if self._metadata.broker_config.one_replica_suffices else int(ErrorCode.NOT_ENOUGH_REPLICAS)
        return 0

    def _injected(self, part: Part, session: Session) -> int:
        """Return the error that a test has injected for a part, or 0."""
        topic = self.topic(part)
        return session.error_of(part.topic_name or (topic.name if topic is not None else ""))

    def _forbidden(self, part: Part, session: Session) -> int:
        """Return the error of a part for a topic the client may not write to, or 0; for an unknown id, 0."""
        name = part.topic_name
        if name is None:
            topic = self.topic(part)
            if topic is None:
                return 0
            name = topic.name
        return rejection(self._metadata.authorizer, session, _PRODUCE, ResourceType.TOPIC, name)

    def without_log(self, view: memoryview, place: tuple[int, int], row: int, error: int) -> tuple[int, int]:
        """Return (error, base offset) for a batch of a partition that has no open log here.

        A predecessor may have appended it: below the published end it is committed, even if its log is offline.
        """
        base_offset = noted_place(view, *place)
        partitions = self._partitions
        is_own = partitions.owner_of(row) == partitions.index
        if is_own and NOT_APPENDED < base_offset < partitions.table.read_end(row):
            return 0, base_offset
        note_rejection(view, *place, error)
        return int(error), -1
