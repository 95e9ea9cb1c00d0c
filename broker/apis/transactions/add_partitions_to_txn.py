"""AddPartitionsToTxn: adds partitions to a transaction, or (version 4 on, for brokers) verifies that they are in it."""

from __future__ import annotations

from typing import Any

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.apis.transactions.transaction_errors import for_version
from rotunda.broker.ipc.request import Request
from rotunda.broker.partitions.transaction_messages import Membership, Producer, TopicPartition
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.sliced_responses import Lazily
from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.scheduling.long_responses import at_length, each_of
from rotunda.broker.scheduling.slices import Work
from rotunda.broker.security.acl.acls import ResourceType
from rotunda.broker.steps import Steps

_FIRST_BATCHED_VERSION = 4

#: The transaction version of clients that add their partitions explicitly.
_PLAIN = 0

#: Transactions checked, or in the response, between two yields.
_TRANSACTIONS_AT_ONCE = 32


def handle_add_partitions_to_txn(request: Request, broker: BrokerContext, body: Any) -> Work:
    """Return an error code for each partition; if one does not exist, none is added."""
    if request.api_version < _FIRST_BATCHED_VERSION:
        return _add(request, broker, body)
    rejection = broker.access.rejection(request, ResourceType.CLUSTER)
    if rejection:
        return at_length({"error_code": rejection, "results_by_transaction": []})
    return _add_batch(request, broker, body)


def _add(request: Request, broker: BrokerContext, body: Any) -> Work:
    places = _places(body.v3_and_below_topics)
    rejection = broker.access.rejection(request, ResourceType.TRANSACTIONAL_ID, body.v3_and_below_transactional_id)
    errors = dict.fromkeys(places, rejection) if rejection else (yield from _unknown(request, broker, places))
    # A request without partitions begins no transaction, whatever the client's rights.
    if places and not errors:
        added = Deferred()
        broker.coordinators.transactions.add_partitions(
            body.v3_and_below_transactional_id,
            Producer(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch),
            frozenset(places),
            _PLAIN,
            lambda error: added.complete((for_version(error, request),)),
        )
        (error,) = yield added
        errors = dict.fromkeys(places, error)
    results = yield from _results(places, errors)
    return {"results_by_topic_v3_and_below": results}


def _add_batch(request: Request, broker: BrokerContext, body: Any) -> Work:
    asked: list[tuple[str, list[TopicPartition], dict[TopicPartition, int], Deferred | None]] = []
    for transaction in body.transactions:
        places = _places(transaction.topics)
        errors = yield from _unknown(request, broker, places)
        verified = None
        if places and not errors:
            verified = Deferred()
            producer = Producer(transaction.producer_id, transaction.producer_epoch)
            membership = Membership(transaction.transactional_id, producer, transaction.verify_only, places)
            broker.coordinators.transaction_rpc.verify_membership(membership, verified.complete)
        asked.append((transaction.transactional_id, places, errors, verified))
        if not len(asked) % _TRANSACTIONS_AT_ONCE:
            yield None
    results: list[dict[str, Any]] = []
    for transactional_id, places, errors, verified in asked:
        codes = dict(zip(places, (yield verified), strict=True)) if verified is not None else errors
        topics = yield from _results(places, codes)
        results.append({"transactional_id": transactional_id, "topic_results": topics})
        if not len(results) % _TRANSACTIONS_AT_ONCE:
            yield None
    return {"error_code": 0, "results_by_transaction": results}


def _places(topics: Any) -> list[TopicPartition]:
    return [(topic.name, partition) for topic in topics for partition in topic.partitions]


def _unknown(request: Request, broker: BrokerContext, places: list[TopicPartition]) -> Steps[dict[TopicPartition, int]]:
    """Return the errors of the partitions, empty if all exist."""
    metadata = broker.metadata
    errors: dict[TopicPartition, int] = {}

    def check(place: TopicPartition) -> None:
        topic = metadata.topic(place[0])
        rejection = (
            0
            if request.api_version >= _FIRST_BATCHED_VERSION
            else broker.access.rejection(request, ResourceType.TOPIC, place[0])
        )
        if rejection:
            errors[place] = rejection
        elif topic is None or metadata.partition(*place) is None:
            errors[place] = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif topic.internal:
            errors[place] = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def keep_out(place: TopicPartition) -> None:
        errors.setdefault(place, int(ErrorCode.OPERATION_NOT_ATTEMPTED))

    yield from each_of(places, check)
    if errors:
        yield from each_of(places, keep_out)
    return errors


def _results(places: list[TopicPartition], errors: dict[TopicPartition, int]) -> Steps[Lazily]:
    """Return the outcomes by topic, encoded later."""
    by_topic: dict[str, list[int]] = {}
    yield from each_of(places, lambda place: by_topic.setdefault(place[0], []).append(place[1]))

    def outcomes(topic: str) -> dict[str, Any]:
        def outcome(partition: int) -> dict[str, int]:
            return {"partition_index": partition, "partition_error_code": errors[topic, partition]}

        return {"name": topic, "results_by_partition": Lazily(by_topic[topic], outcome)}

    return Lazily(by_topic, outcomes)
