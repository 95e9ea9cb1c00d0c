# ruff: noqa: N818 - named for what happened, as Kafka names them
"""What can go wrong for a client: one class a kind, named after Kafka's, with Kafka's code and whether to try again.

Runs in the user's process. `error_of` makes the error of an answer's code; a code without a class of its own is a
`ServerError`, or a `RetriableServerError`, that says Kafka's name of it. Nothing here knows of the producer.
"""

from __future__ import annotations

from typing import Final

from rotunda.broker.errors import RotundaError
from rotunda.broker.protocol.error_codes import ErrorCode

_CLASSES: Final[dict[int, type[KafkaError]]] = {}


class KafkaError(RotundaError):
    """Root of what a client raises, or puts into a future. `code` is None where no broker has said it."""

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
    """What the client knows of the cluster is out of date: it asks again."""


class ServerError(KafkaError):
    """An answer's code that has no class of its own and is not to be retried."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        self.code = code
        super().__init__(f"{code.name}: {message or code.text}")


class RetriableServerError(ServerError, RetriableError):
    """An answer's code that has no class of its own and may be retried."""


class DeliveryTimeout(RetriableError):
    """Time ran out: for metadata, for room in the buffer, or until a record was acknowledged (Kafka: Timeout)."""

    code = ErrorCode.REQUEST_TIMED_OUT


class BufferExhausted(DeliveryTimeout):
    """No room in `buffer.memory` within `max.block.ms`."""


class NetworkFailure(InvalidMetadata):
    """The connection ended before the answer came (Kafka: NetworkException)."""

    code = ErrorCode.NETWORK_EXCEPTION


class ProducerClosed(KafkaError):
    """The producer has been closed, or is closed by force while records wait."""


class Interrupted(KafkaError):
    """A call that waited was ended from outside."""


class SerializationFailed(KafkaError):
    """A serializer could not make bytes of a key or a value."""


class UnsupportedVersion(KafkaError):
    """The broker serves no version of an API that this client speaks."""

    code = ErrorCode.UNSUPPORTED_VERSION


class IllegalState(KafkaError):
    """A call that the producer's state does not allow."""


class RecordTooLarge(KafkaError):
    """A record, or a batch of one, is larger than may be."""

    code = ErrorCode.MESSAGE_TOO_LARGE


class RecordBatchTooLarge(KafkaError):
    """A batch is larger than a segment of the log."""

    code = ErrorCode.RECORD_LIST_TOO_LARGE


class InvalidTopic(KafkaError):
    """No topic can have this name."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class InvalidRecord(KafkaError):
    """The broker refuses a record for what it is."""

    code = ErrorCode.INVALID_RECORD


class InvalidTimestamp(KafkaError):
    """A record's time is further from the broker's than the topic allows."""

    code = ErrorCode.INVALID_TIMESTAMP


class InvalidRequiredAcks(KafkaError):
    """The broker does not know this `acks`."""

    code = ErrorCode.INVALID_REQUIRED_ACKS


class CorruptRecord(RetriableError):
    """A checksum does not fit (Kafka: CorruptRecordException)."""

    code = ErrorCode.CORRUPT_MESSAGE


class UnsupportedCompressionType(KafkaError):
    """The broker does not know the codec."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class UnknownTopicOrPartition(InvalidMetadata):
    """The broker has no such topic or partition."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class UnknownTopicId(InvalidMetadata):
    """The broker has no topic of this id."""

    code = ErrorCode.UNKNOWN_TOPIC_ID


class LeaderNotAvailable(InvalidMetadata):
    """A partition has no leader now."""

    code = ErrorCode.LEADER_NOT_AVAILABLE


class NotLeaderOrFollower(InvalidMetadata):
    """The broker does not lead the partition."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class FencedLeaderEpoch(InvalidMetadata):
    """The client knows of an older leader than the broker."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class KafkaStorageError(InvalidMetadata):
    """The disk of the broker fails."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class NotEnoughReplicas(RetriableError):
    """Fewer replicas are in sync than `min.insync.replicas`."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS


class NotEnoughReplicasAfterAppend(RetriableError):
    """The same, seen after the record was appended."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class ThrottlingQuotaExceeded(RetriableError):
    """A quota is used up."""

    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class CoordinatorNotAvailable(RetriableError):
    """There is no coordinator now."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class CoordinatorLoadInProgress(RetriableError):
    """The coordinator is reading its log."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class NotCoordinator(RetriableError):
    """Another broker is the coordinator."""

    code = ErrorCode.NOT_COORDINATOR


class ConcurrentTransactions(RetriableError):
    """The last transaction of this producer is still being ended."""

    code = ErrorCode.CONCURRENT_TRANSACTIONS


class AuthorizationFailed(KafkaError):
    """The user may not do this."""


class TopicAuthorizationFailed(AuthorizationFailed):
    """The user may not write to the topic."""

    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class GroupAuthorizationFailed(AuthorizationFailed):
    """The user may not use the group."""

    code = ErrorCode.GROUP_AUTHORIZATION_FAILED


class ClusterAuthorizationFailed(AuthorizationFailed):
    """The user may not do this in the cluster; for a producer: be idempotent."""

    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class TransactionalIdAuthorizationFailed(AuthorizationFailed):
    """The user may not use the transactional id."""

    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class AuthenticationFailed(KafkaError):
    """The broker does not believe who the client is, or TLS could not be agreed on."""


class SaslAuthenticationFailed(AuthenticationFailed):
    """The broker refuses user and password, or the token."""

    code = ErrorCode.SASL_AUTHENTICATION_FAILED


class UnsupportedSaslMechanism(AuthenticationFailed):
    """The broker does not know the mechanism."""

    code = ErrorCode.UNSUPPORTED_SASL_MECHANISM


class OutOfOrderSequence(KafkaError):
    """A batch came to the broker before one that was sent earlier, which is lost."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class DuplicateSequence(KafkaError):
    """The broker has the batch, and no longer knows where."""

    code = ErrorCode.DUPLICATE_SEQUENCE_NUMBER


class UnknownProducerId(OutOfOrderSequence):
    """The broker has forgotten the producer."""

    code = ErrorCode.UNKNOWN_PRODUCER_ID


class InvalidProducerEpoch(KafkaError):
    """The producer has been replaced; a transaction must be aborted."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH


class ProducerFenced(KafkaError):
    """Another producer has taken over the transactional id: this one can only be closed."""

    code = ErrorCode.PRODUCER_FENCED


class TransactionCoordinatorFenced(KafkaError):
    """The coordinator that was asked has been replaced."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class InvalidProducerIdMapping(KafkaError):
    """The broker knows no such producer id for the transactional id."""

    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING


class InvalidTxnState(KafkaError):
    """The broker's transaction is in a state that does not allow this."""

    code = ErrorCode.INVALID_TXN_STATE


class InvalidTransactionTimeout(KafkaError):
    """`transaction.timeout.ms` is longer than the broker allows."""

    code = ErrorCode.INVALID_TRANSACTION_TIMEOUT


class TransactionAborted(KafkaError):
    """A record was not sent since its transaction was aborted."""


class TransactionAbortable(KafkaError):
    """The transaction cannot be committed and can be aborted (KIP-890)."""

    code = ErrorCode.TRANSACTION_ABORTABLE


class CommitFailed(KafkaError):
    """Offsets were not committed: the consumer is no longer a member as it says."""


class FencedInstanceId(KafkaError):
    """Another consumer has the same `group.instance.id`."""

    code = ErrorCode.FENCED_INSTANCE_ID


def error_of(code: int, message: str | None = None) -> KafkaError:
    """Return the error of an answer's code; `message` is the broker's own words, if it has any."""
    known = next((each for each in ErrorCode if each == code), None)
    if known is None:
        return ServerError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker's error {code} is not known to this version")
    kind = _CLASSES.get(code)
    if kind is not None:
        return kind(message)
    return RetriableServerError(known, message) if known.retriable else ServerError(known, message)
