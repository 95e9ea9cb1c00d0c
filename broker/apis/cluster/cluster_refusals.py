"""The answers to who may not do with the cluster what an API is for: to the whole request, as Kafka gives them.

Runs in handler processes and the controller. Which operation that is stands in `broker.security.acl.checks`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from broker.apis.context import RequestContext
from broker.protocol.api_keys import ApiKey
from broker.protocol.sliced_responses import Lazily

Refusal = dict[str, Any]
#: Takes the request, and error code and message; returns the response.
Refuse = Callable[[Any, Refusal], dict[str, Any]]


def guarded(key: ApiKey, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that asks first whether its client may, for the APIs that have an answer here."""
    refuse = _ANSWERS.get(key)
    if refuse is None:
        return function

    def ask_first(context: RequestContext, request: Any) -> Any:
        refusal = context.refusal_of_cluster()
        return function(context, request) if refusal is None else refuse(request, refusal)

    return ask_first


def refused(key: ApiKey, request: Any, refusal: Refusal) -> dict[str, Any] | None:
    """Return the answer that refuses a whole request; None for an API that has none here."""
    refuse = _ANSWERS.get(key)
    return None if refuse is None else refuse(request, refusal)


def _with(fields: Mapping[str, Any]) -> Refuse:
    return lambda _request, refusal: {**refusal, **fields}


def _log_dirs_altered(request: Any, refusal: Refusal) -> dict[str, Any]:
    error = refusal["error_code"]

    def result(topic: Any) -> dict[str, Any]:
        partitions = Lazily(topic.partitions, lambda index: {"partition_index": index, "error_code": error})
        return {"topic_name": topic.name, "partitions": partitions}

    return {"results": [result(topic) for directory in request.dirs for topic in directory.topics]}


def _elected(request: Any, refusal: Refusal) -> dict[str, Any]:
    def result(topic: Any) -> dict[str, Any]:
        partitions = Lazily(topic.partitions, lambda index: {"partition_id": index, **refusal})
        return {"topic": topic.topic, "partition_result": partitions}

    return {"error_code": refusal["error_code"], "replica_election_results": [
        result(topic) for topic in request.topic_partitions or ()
    ]}  # fmt: skip


def _reassigned(request: Any, refusal: Refusal) -> dict[str, Any]:
    def result(topic: Any) -> dict[str, Any]:
        partitions = Lazily(topic.partitions, lambda part: {"partition_index": part.partition_index, **refusal})
        return {"name": topic.name, "partitions": partitions}

    return {
        **refusal,
        "allow_replication_factor_change": request.allow_replication_factor_change,
        "responses": Lazily(request.topics, result),
    }


def _being_reassigned(request: Any, refusal: Refusal) -> dict[str, Any]:
    nothing: dict[str, Any] = {"replicas": [], "adding_replicas": [], "removing_replicas": []}

    def result(topic: Any) -> dict[str, Any]:
        partitions = Lazily(topic.partition_indexes, lambda index: {"partition_index": index, **nothing})
        return {"name": topic.name, "partitions": partitions}

    return {**refusal, "topics": Lazily(request.topics or (), result)}


def _quotas_altered(request: Any, refusal: Refusal) -> dict[str, Any]:
    def entry(asked: Any) -> dict[str, Any]:
        entity = [{"entity_type": part.entity_type, "entity_name": part.entity_name} for part in asked.entity]
        return {**refusal, "entity": entity}

    return {"entries": Lazily(request.entries, entry)}


def _credentials_described(request: Any, refusal: Refusal) -> dict[str, Any]:
    # Kafka leaves the names out.
    nameless = {"user": "", "credential_infos": [], **refusal}
    return {**refusal, "results": [nameless] * len(request.users or ())}


def _credentials_altered(request: Any, refusal: Refusal) -> dict[str, Any]:
    users = sorted({each.name for each in (*request.deletions, *request.upsertions)})
    return {"results": Lazily(users, lambda user: {"user": user, **refusal})}


_ANSWERS: Final[Mapping[ApiKey, Refuse]] = MappingProxyType(
    {
        ApiKey.ALTER_REPLICA_LOG_DIRS: _log_dirs_altered,
        ApiKey.DESCRIBE_LOG_DIRS: lambda _request, refusal: {
            "error_code": refusal["error_code"],
            "results": [],
        },
        ApiKey.ELECT_LEADERS: _elected,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: _reassigned,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: _being_reassigned,
        ApiKey.DESCRIBE_CLIENT_QUOTAS: _with({"entries": None}),
        ApiKey.ALTER_CLIENT_QUOTAS: _quotas_altered,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _credentials_described,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _credentials_altered,
        ApiKey.DESCRIBE_QUORUM: _with({"topics": [], "nodes": []}),
        ApiKey.UPDATE_FEATURES: _with({"results": []}),
        ApiKey.LIST_CONFIG_RESOURCES: lambda _request, refusal: {
            "error_code": refusal["error_code"],
            "config_resources": [],
        },
        ApiKey.DESCRIBE_ACLS: _with({"resources": []}),
        ApiKey.CREATE_ACLS: lambda request, refusal: {"results": [refusal] * len(request.creations)},
        ApiKey.DELETE_ACLS: lambda request, refusal: {
            "filter_results": [{**refusal, "matching_acls": []}] * len(request.filters)
        },
    }
)
