"""DescribeUserScramCredentials, served by any handler, and AlterUserScramCredentials, by the controller (KIP-554).

Clients send passwords salted and hashed; the stored keys do not suffice to log in. Both are done in slices: a request
may name very many users.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from rotunda.broker.apis.cluster.controller_access import (
    ANNOUNCED_AT_ONCE,
    alter_each,
    announce,
    controller_of,
    portions,
)
from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.errors import ApiError
from rotunda.broker.ipc.request import Request
from rotunda.broker.metadata.security.scram_users import MECHANISMS, Deletion, Upsertion, described, mechanism_of
from rotunda.broker.protocol.error_codes import ErrorCode, text_of
from rotunda.broker.scheduling.long_responses import each_of
from rotunda.broker.scheduling.slices import Work


def handle_describe_user_scram_credentials(_request: Request, broker: BrokerContext, body: Any) -> Work:
    """Return the mechanisms and iterations of each requested user; of all users by default."""
    credentials = broker.metadata.user_credentials
    times_asked = Counter([user.name for user in body.users] if body.users else credentials.keys())
    yield None
    results: list[dict[str, Any]] = []

    def describe(asked: tuple[str, int]) -> None:
        name, times = asked
        infos = described(credentials.get(name, {}))
        if times > 1:
            text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
            results.append(_described(name, ErrorCode.DUPLICATE_RESOURCE, text))
        elif infos:
            found = [{"mechanism": MECHANISMS[mechanism], "iterations": count} for mechanism, count in infos]
            results.append({"user": name, "error_code": 0, "error_message": None, "credential_infos": found})
        elif body.users:
            text = f"Attempt to describe a user credential that does not exist: {name}"
            results.append(_described(name, ErrorCode.RESOURCE_NOT_FOUND, text))

    yield from each_of(times_asked.items(), describe)
    return {"error_code": 0, "error_message": None, "results": results}


def handle_alter_user_scram_credentials(_request: Request, broker: BrokerContext, body: Any) -> Work:
    """Return an outcome for each user; on success the credentials are on disk and known to every process."""
    controller = controller_of(broker)
    changes: dict[str, list[Deletion | Upsertion]] = {}
    times_named: Counter[tuple[str, int]] = Counter()

    def note(change: Deletion | Upsertion) -> None:
        changes.setdefault(change.user, []).append(change)
        times_named[change.user, change.mechanism] += 1

    yield from each_of(body.deletions, lambda each: note(Deletion(each.name, each.mechanism)))
    yield from each_of(body.upsertions, lambda each: note(_upsertion(each)))

    def alter(named: tuple[str, list[Deletion | Upsertion]]) -> None:
        user, mine = named
        for each in mine:
            mechanism_of(each)
        if any(times_named[user, each.mechanism] > 1 for each in mine):
            raise ApiError(
                ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
            )
        controller.alter_user_credentials(user, mine)

    results = []
    for number, portion in enumerate(portions(changes.items(), lambda named: len(named[1])), 1):
        for (user, _), failure in zip(portion, alter_each(controller, portion, alter), strict=True):
            results.append(
                {
                    "user": user,
                    "error_code": 0 if failure is None else failure.code,
                    "error_message": None if failure is None else failure.message or text_of(failure.code),
                }
            )
        if not number % ANNOUNCED_AT_ONCE:
            announce(broker)
        yield None
    announce(broker)
    return {"results": results}


def _upsertion(each: Any) -> Upsertion:
    return Upsertion(each.name, each.mechanism, each.iterations, bytes(each.salt), bytes(each.salted_password))


def _described(user: str, error: int, message: str) -> dict[str, Any]:
    return {"user": user, "error_code": error, "error_message": message, "credential_infos": []}
