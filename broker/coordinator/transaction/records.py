"""The records of `__transaction_state`, as Kafka writes them: version 0, and 1 from transaction version 1 on.

Pure. One tagged field is Rotunda's own: the previous epoch of the producer, so that a repeated request to raise the
epoch does not raise it again.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from rotunda.broker.coordinator.records import RecordType
from rotunda.broker.coordinator.transaction.transaction import TransactionMetadata, TransactionState

TRANSACTION_LOG: Final = RecordType("TransactionLog", own_fields="last_producer_epoch int16 1+ tag=10000 default=-1")


def encode_key(transactional_id: str) -> bytes:
    return TRANSACTION_LOG.key(transactional_id=transactional_id)


def encode_value(metadata: TransactionMetadata, version: int) -> bytes:
    topics = None
    if metadata.state is not TransactionState.EMPTY:
        topics = [
            {"topic": topic, "partition_ids": [partition for _, partition in partitions]}
            for topic, partitions in groupby(sorted(metadata.partitions), itemgetter(0))
        ]
    value = {
        "producer_id": metadata.producer_id,
        "previous_producer_id": metadata.previous_producer_id,
        "next_producer_id": metadata.next_producer_id,
        "producer_epoch": metadata.epoch,
        "last_producer_epoch": metadata.last_epoch,
        "transaction_timeout_ms": metadata.timeout_ms,
        "transaction_status": metadata.state,
        "transaction_partitions": topics,
        "transaction_last_update_timestamp_ms": metadata.updated_ms,
        "transaction_start_timestamp_ms": metadata.start_ms,
        "client_transaction_version": metadata.client_version,
    }
    return TRANSACTION_LOG.value(version, value)


def metadata_of(value: Any) -> TransactionMetadata:
    """Return the metadata in a TransactionLogValue. ValueError for an unknown state."""
    return TransactionMetadata(
        value.producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        value.transaction_last_update_timestamp_ms,
        TransactionState(value.transaction_status),
        frozenset([(each.topic, index) for each in value.transaction_partitions or () for index in each.partition_ids]),
        value.transaction_start_timestamp_ms,
        value.last_producer_epoch,
        value.previous_producer_id,
        value.next_producer_id,
        value.client_transaction_version,
    )
