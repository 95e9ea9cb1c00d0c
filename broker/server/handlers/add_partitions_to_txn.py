"""AddPartitionsToTxn: makes partitions part of a transaction, or (version 4 on, for brokers) asks whether they are."""

from __future__ import annotations

from typing import Any

from broker.coordinator.transaction import Producer, TopicPartition
from broker.protocol.error_codes import ErrorCode
from broker.server.deferred import Deferred
from broker.server.handlers.transaction_errors import for_version
from broker.server.request_context import RequestContext
from broker.server.transaction_desk import Membership

_FIRST_BATCHED_VERSION = 4

#: The transaction version of clients that say themselves which partitions they are going to write to.
_PLAIN = 0


def handle_add_partitions_to_txn(context: RequestContext, request: Any) -> Deferred:
    """Return an error code for each partition; one that does not exist keeps all others out."""
    return _add_batch(context, request) if context.api_version >= _FIRST_BATCHED_VERSION else _add(context, request)


def _add(context: RequestContext, request: Any) -> Deferred:
    deferred = Deferred()
    places = _places(request.v3_and_below_topics)

    def answer(errors: dict[TopicPartition, int]) -> None:
        topics = _results(places, errors)
        deferred.complete({"throttle_time_ms": 0, "results_by_topic_v3_and_below": topics})

    errors = _unknown(context, places)
    if errors:
        answer(errors)
        return deferred
    context.broker.coordinators.transactions.add_partitions(
        request.v3_and_below_transactional_id,
        Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
        frozenset(places),
        _PLAIN,
        lambda error: answer(dict.fromkeys(places, for_version(error, context))),
    )
    return deferred


def _add_batch(context: RequestContext, request: Any) -> Deferred:
    deferred = Deferred()
    results: list[dict[str, Any] | None] = [None] * len(request.transactions)
    left = len(results)

    def noted(index: int, topics: list[dict[str, Any]]) -> None:
        nonlocal left
        transactional_id = request.transactions[index].transactional_id
        results[index] = {"transactional_id": transactional_id, "topic_results": topics}
        left -= 1
        if not left:
            deferred.complete({"throttle_time_ms": 0, "error_code": 0, "results_by_transaction": results})

    for index, transaction in enumerate(request.transactions):
        _add_one(context, index, transaction, noted)
    if not results:
        deferred.complete({"throttle_time_ms": 0, "error_code": 0, "results_by_transaction": []})
    return deferred


def _add_one(context: RequestContext, index: int, transaction: Any, noted: Any) -> None:
    places = _places(transaction.topics)
    errors = _unknown(context, places)
    if errors or not places:
        noted(index, _results(places, errors))
        return

    def answered(codes: list[int]) -> None:
        noted(index, _results(places, dict(zip(places, codes, strict=True))))

    producer = Producer(transaction.producer_id, transaction.producer_epoch)
    membership = Membership(transaction.transactional_id, producer, transaction.verify_only, places)
    context.broker.coordinators.transaction_desk.ask_membership(membership, answered)


def _places(topics: Any) -> list[TopicPartition]:
    return [(topic.name, partition) for topic in topics for partition in topic.partitions]


def _unknown(context: RequestContext, places: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Return what is wrong with the partitions, or nothing if nothing is."""
    metadata = context.broker.metadata
    errors = {}
    for place in places:
        topic = metadata.topic(place[0])
        if topic is None or metadata.partition(*place) is None:
            errors[place] = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif topic.internal:
            errors[place] = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if errors:
        for place in places:
            errors.setdefault(place, int(ErrorCode.OPERATION_NOT_ATTEMPTED))
    return errors


def _results(places: list[TopicPartition], errors: dict[TopicPartition, int]) -> list[dict[str, Any]]:
    by_topic: dict[str, list[dict[str, int]]] = {}
    for topic, partition in places:
        result = {"partition_index": partition, "partition_error_code": errors[topic, partition]}
        by_topic.setdefault(topic, []).append(result)
    return [{"name": topic, "results_by_partition": results} for topic, results in by_topic.items()]
