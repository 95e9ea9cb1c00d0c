"""DescribeUserScramCredentials and AlterUserScramCredentials without SASL: nobody has a credential (KIP-554).

A credential that no listener would ever ask for is not taken: UNSUPPORTED_VERSION is how Kafka answers where it cannot
keep one. What is wrong with a request besides is said first, so that a mistake is not taken for that. Both are done in
slices: a request may name very many users.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from broker.apis.context import RequestContext
from broker.errors import ApiError
from broker.protocol.error_codes import ErrorCode, text_of
from broker.scheduling.long_answers import each_of
from broker.scheduling.slices import Work

#: By number of the mechanism: its name and the fewest iterations that Kafka accepts for it.
_MECHANISMS = {1: ("SCRAM-SHA-256", 4096), 2: ("SCRAM-SHA-512", 4096)}
_MOST_ITERATIONS = 16384


def handle_describe_user_scram_credentials(context: RequestContext, request: Any) -> Work:
    """Return an error for each user asked for; nothing when the question is for all users."""
    del context
    times_asked = Counter(user.name for user in request.users or ())
    yield None
    results: list[dict[str, Any]] = []

    def describe(asked: tuple[str, int]) -> None:
        name, times = asked
        results.append(_unknown(name) if times == 1 else _asked_twice(name))

    yield from each_of(times_asked.items(), describe)
    return {"error_code": 0, "error_message": None, "results": results}


def handle_alter_user_scram_credentials(context: RequestContext, request: Any) -> Work:
    """Return an error for each user named."""
    del context
    times_named = Counter(each.name for each in (*request.deletions, *request.upsertions))
    yield None
    failures: dict[str, dict[str, Any]] = {}

    def note(user: str, error: ApiError) -> None:
        if times_named[user] > 1:
            error = ApiError(
                ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
            )
        message = error.message or text_of(error.code)
        failures[user] = {"user": user, "error_code": error.code, "error_message": message}

    yield from each_of(request.deletions, lambda each: note(each.name, _failed_deletion(each)))
    yield from each_of(request.upsertions, lambda each: note(each.name, _failed_upsertion(each)))
    results = list(failures.values())
    return {"results": results}


def _unknown(user: str) -> dict[str, Any]:
    message = f"Attempt to describe a user credential that does not exist: {user}"
    return _described(user, ErrorCode.RESOURCE_NOT_FOUND, message)


def _asked_twice(user: str) -> dict[str, Any]:
    message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
    return _described(user, ErrorCode.DUPLICATE_RESOURCE, message)


def _described(user: str, error: int, message: str) -> dict[str, Any]:
    return {"user": user, "error_code": error, "error_message": message, "credential_infos": []}


def _failed_deletion(deletion: Any) -> ApiError:
    return _invalid_name_or_mechanism(deletion) or ApiError(
        ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
    )


def _failed_upsertion(upsertion: Any) -> ApiError:
    invalid = _invalid_name_or_mechanism(upsertion)
    if invalid is not None:
        return invalid
    name, fewest = _MECHANISMS[upsertion.mechanism]
    if upsertion.iterations < fewest:
        return ApiError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too few iterations: {upsertion.iterations}, {name} needs {fewest}"
        )
    if upsertion.iterations > _MOST_ITERATIONS:
        return ApiError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"Too many iterations: {upsertion.iterations}, {_MOST_ITERATIONS} is the most",
        )
    return ApiError(
        ErrorCode.UNSUPPORTED_VERSION,
        f"{name} is not enabled: no listener of this broker asks for credentials, so none is kept",
    )


def _invalid_name_or_mechanism(change: Any) -> ApiError | None:
    if not change.name:
        return ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.mechanism not in _MECHANISMS:
        return ApiError(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            f"Unknown SCRAM mechanism {change.mechanism}; 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512",
        )
    return None
