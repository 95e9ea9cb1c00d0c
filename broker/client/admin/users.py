"""The command line's operations on SCRAM users, as requests on a client (KIP-554)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rotunda.broker.client.network.blocking_client import check
from rotunda.broker.errors import ApiError
from rotunda.broker.metadata.security.scram_users import MECHANISMS
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.security.sasl.scram_credential import new_salt, salted

if TYPE_CHECKING:
    from rotunda.broker.client.network.blocking_client import BlockingClient

_NAMES = {number: name for name, number in MECHANISMS.items()}
_NOT_FOUND = 91

#: By user, by mechanism: the iterations.
Users = Mapping[str, Mapping[str, int]]


def describe(client: BlockingClient, names: Iterable[str] | None = None) -> Users:
    """Return these users if they exist, or all. Raises ApiError."""
    users = None if names is None else [{"name": name} for name in names]
    response = client.request(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": users}, 0)
    check(response)
    found: dict[str, Mapping[str, int]] = {}
    for each in response.results:
        if int(each.error_code) == _NOT_FOUND:
            continue
        check(each)
        found[each.user] = {_NAMES[int(info.mechanism)]: info.iterations for info in each.credential_infos}
    return found


def add(client: BlockingClient, user: str, password: str, mechanisms: Iterable[str], iterations: int) -> None:
    """Set a user's password, replacing any existing one. The password itself is not sent. Raises ApiError."""
    upsertions = []
    for mechanism in mechanisms:
        salt = new_salt()
        proof = salted(mechanism, password, salt, iterations)
        of_mechanism = {"name": user, "mechanism": MECHANISMS[mechanism], "iterations": iterations}
        upsertions.append({**of_mechanism, "salt": salt, "salted_password": proof})
    # One mechanism per request: Kafka rejects two changes of a user in one request.
    for upsertion in upsertions:
        _alter(client, {"deletions": [], "upsertions": [upsertion]})


def delete(client: BlockingClient, user: str, mechanisms: Iterable[str]) -> None:
    """Remove a user's password for these mechanisms. Raises ApiError."""
    for mechanism in mechanisms:
        deletion = {"name": user, "mechanism": MECHANISMS[mechanism]}
        _alter(client, {"deletions": [deletion], "upsertions": []})


def _alter(client: BlockingClient, fields: Mapping[str, object]) -> None:
    response = client.request(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, fields, 0)
    for result in response.results:
        if int(result.error_code):
            raise ApiError(int(result.error_code), result.error_message)
