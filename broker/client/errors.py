# ruff: noqa: N818 - named for what happened, as Kafka names them
"""Client errors: one class per kind, named after Kafka's, with Kafka's code and whether to retry.

Runs in the user's process. `error_of` returns the error for a response's code; a code without its own class becomes a
`ServerError` or `RetriableServerError` with Kafka's name. This module must not know about the producer.
"""

from __future__ import annotations

from typing import Final

from rotunda.broker.errors import RotundaError
from rotunda.broker.protocol.error_codes import ErrorCode

_CLASSES: Final[dict[int, type[KafkaError]]] = {}


class KafkaError(RotundaError):
    """Base class of errors that a client raises or sets on a future. `code` is None if no broker sent the error."""

    code: ErrorCode | None = None
    #: Whether the same request may succeed later.
    retriable = False

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message if message is not None else self.code.text if self.code else "")

    def __init_subclass__(cls) -> None:
        code = cls.__dict__.get("code")
        if code is not None:
            _CLASSES[code] = cls

    @property
    def kafka_name(self) -> str:
        """Kafka's name of the code; empty without one."""
        return self.code.name if self.code is not None else ""


class RetriableError(KafkaError):
    """The same request may succeed later."""

    retriable = True


class InvalidMetadata(RetriableError):
    """The client's metadata is outdated; it requests an update."""


class ServerError(KafkaError):
    """A response's error code without its own class, not retriable."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        self.code = code
        super().__init__(f"{code.name}: {message or code.text}")


class RetriableServerError(ServerError, RetriableError):
    """A response's error code without its own class, retriable."""


class DeliveryTimeout(RetriableError):
    """A timeout: for metadata, buffer memory, or a record's acknowledgement (Kafka: Timeout)."""

    code = ErrorCode.REQUEST_TIMED_OUT


class BufferExhausted(DeliveryTimeout):
    """No memory in `buffer.memory` became free within `max.block.ms`."""


class NetworkFailure(InvalidMetadata):
    """The connection ended before the response was received (Kafka: NetworkException)."""

    code = ErrorCode.NETWORK_EXCEPTION


class ProducerClosed(KafkaError):
    """The producer is closed, or was closed by force while records were pending."""


class Interrupted(KafkaError):
    """A waiting call was interrupted."""


class SerializationFailed(KafkaError):
    """A serializer failed for a key or a value."""


class UnsupportedVersion(KafkaError):
    """The broker and this client have no common version of an API."""

    code = ErrorCode.UNSUPPORTED_VERSION


class IllegalState(KafkaError):
    """The call is invalid in the current state."""


class RecordTooLarge(KafkaError):
    """A record, or a batch of one record, exceeds a size limit."""

    code = ErrorCode.MESSAGE_TOO_LARGE


class RecordBatchTooLarge(KafkaError):
    """A batch is larger than a log segment."""

    code = ErrorCode.RECORD_LIST_TOO_LARGE


class InvalidTopic(KafkaError):
    """Invalid topic name."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class InvalidRecord(KafkaError):
    """The broker rejected the record as invalid."""

    code = ErrorCode.INVALID_RECORD


class InvalidTimestamp(KafkaError):
    """A record's timestamp differs from the broker's time by more than the topic allows."""

    code = ErrorCode.INVALID_TIMESTAMP


class InvalidRequiredAcks(KafkaError):
    """The broker does not support this `acks` value."""

    code = ErrorCode.INVALID_REQUIRED_ACKS


class CorruptRecord(RetriableError):
    """A checksum does not match (Kafka: CorruptRecordException)."""

    code = ErrorCode.CORRUPT_MESSAGE


class UnsupportedCompressionType(KafkaError):
    """The broker does not support the codec."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class UnknownTopicOrPartition(InvalidMetadata):
    """The broker has no such topic or partition."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class UnknownTopicId(InvalidMetadata):
    """The broker has no topic with this id."""

    code = ErrorCode.UNKNOWN_TOPIC_ID


class LeaderNotAvailable(InvalidMetadata):
    """A partition currently has no leader."""

    code = ErrorCode.LEADER_NOT_AVAILABLE


class NotLeaderOrFollower(InvalidMetadata):
    """The broker does not lead the partition."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class FencedLeaderEpoch(InvalidMetadata):
    """The client's leader epoch is older than the broker's."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class KafkaStorageError(InvalidMetadata):
    """The broker had a disk error."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class NotEnoughReplicas(RetriableError):
    """Fewer replicas are in sync than `min.insync.replicas`."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS


class NotEnoughReplicasAfterAppend(RetriableError):
    """The same, detected after the record was appended."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class ThrottlingQuotaExceeded(RetriableError):
    """A quota is exhausted."""

    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class CoordinatorNotAvailable(RetriableError):
    """No coordinator is available now."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class CoordinatorLoadInProgress(RetriableError):
    """The coordinator is loading its log."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class NotCoordinator(RetriableError):
    """Another broker is the coordinator."""

    code = ErrorCode.NOT_COORDINATOR


class ConcurrentTransactions(RetriableError):
    """The previous transaction of this producer is still being completed."""

    code = ErrorCode.CONCURRENT_TRANSACTIONS


class AuthorizationFailed(KafkaError):
    """The user is not authorized."""


class TopicAuthorizationFailed(AuthorizationFailed):
    """The user may not write to the topic."""

    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class GroupAuthorizationFailed(AuthorizationFailed):
    """The user may not use the group."""

    code = ErrorCode.GROUP_AUTHORIZATION_FAILED


class ClusterAuthorizationFailed(AuthorizationFailed):
    """The user lacks a cluster permission; for a producer: idempotent writes."""

    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class TransactionalIdAuthorizationFailed(AuthorizationFailed):
    """The user may not use the transactional id."""

    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class AuthenticationFailed(KafkaError):
    """The broker rejected the client's identity, or the TLS handshake failed."""


class SaslAuthenticationFailed(AuthenticationFailed):
    """The broker rejected user and password, or the token."""

    code = ErrorCode.SASL_AUTHENTICATION_FAILED


class UnsupportedSaslMechanism(AuthenticationFailed):
    """The broker does not support the mechanism."""

    code = ErrorCode.UNSUPPORTED_SASL_MECHANISM


class OutOfOrderSequence(KafkaError):
    """A batch arrived at the broker before an earlier one, which is lost."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class DuplicateSequence(KafkaError):
    """The broker already has the batch, at an unknown offset."""

    code = ErrorCode.DUPLICATE_SEQUENCE_NUMBER


class UnknownProducerId(OutOfOrderSequence):
    """The broker no longer has the producer's state."""

    code = ErrorCode.UNKNOWN_PRODUCER_ID


class InvalidProducerEpoch(KafkaError):
    """The producer was replaced; a transaction must be aborted."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH


class ProducerFenced(KafkaError):
    """Another producer uses the transactional id: this one can only be closed."""

    code = ErrorCode.PRODUCER_FENCED


class TransactionCoordinatorFenced(KafkaError):
    """The coordinator was replaced."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class InvalidProducerIdMapping(KafkaError):
    """The broker does not know the producer id for this transactional id."""

    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING


class InvalidTxnState(KafkaError):
    """The broker's transaction state does not allow this request."""

    code = ErrorCode.INVALID_TXN_STATE


class InvalidTransactionTimeout(KafkaError):
    """`transaction.timeout.ms` exceeds the broker's maximum."""

    code = ErrorCode.INVALID_TRANSACTION_TIMEOUT


class TransactionAborted(KafkaError):
    """A record was not sent because its transaction was aborted."""


class TransactionAbortable(KafkaError):
    """The transaction cannot be committed, but can be aborted (KIP-890)."""

    code = ErrorCode.TRANSACTION_ABORTABLE


class CommitFailed(KafkaError):
    """Offsets were not committed: the consumer's membership is outdated."""


class FencedInstanceId(KafkaError):
    """Another consumer has the same `group.instance.id`."""

    code = ErrorCode.FENCED_INSTANCE_ID


def error_of(code: int, message: str | None = None) -> KafkaError:
    """Return the error for a response's code; `message` is the broker's text, if any."""
    known = next((each for each in ErrorCode if each == code), None)
    if known is None:
        return ServerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker's error {code} is not known to this version")
    kind = _CLASSES.get(code)
    if kind is not None:
        return kind(message)
    return RetriableServerError(known, message) if known.retriable else ServerError(known, message)
