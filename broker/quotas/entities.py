"""Selects the quota that applies to a client, by Kafka's order of quota entities (`E09`).

Pure functions over plain values. As in Kafka an unauthenticated client is the user ANONYMOUS.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from rotunda.broker.config.keys import MAX_LONG
from rotunda.broker.metadata.configs.quota_entities import CLIENT_ID, USER, ClientQuotas, QuotaEntity
from rotunda.shm.tables.quota_tables import FETCH, PRODUCE, QUOTAS, REQUEST_RATE

if TYPE_CHECKING:
    from rotunda.broker.config.broker_config import BrokerConfig


class Limit(NamedTuple):
    """An entity's limit for one quota, per second: bytes, partitions, or percents of the time of one thread.

    All clients with the same ``user`` and ``client_id`` share it. An empty one matches any value, and two empty ones
    match all clients.
    """

    user: str
    client_id: str
    value: float

    @property
    def is_of_all(self) -> bool:
        """Whether all clients share it."""
        return not (self.user or self.client_id)

    def entity(self, quota: str) -> int:
        """Return the hash by which every process finds the usage of this entity: never 0, and not negative."""
        text = f"{quota}\0{self.user}\0{self.client_id}"
        return int.from_bytes(blake2b(text.encode(errors="replace"), digest_size=8).digest(), "big") >> 1 or 1


def limit_of(quotas: ClientQuotas, quota: str, user: str, client_id: str) -> Limit | None:
    """Return the most specific quota of that name that is set for a client, or None: unlimited.

    As in Kafka a client without an id has only its user's quota.
    """
    for entity, scope in _entities(user, client_id):
        value = quotas.get(entity, {}).get(quota)
        if value is not None:
            return Limit(*scope, value)
    return None


def is_set(quotas: ClientQuotas, quota: str, user: str, client_id: str) -> bool:
    """Return whether a quota is set that clients of ``user`` and ``client_id`` share (`Limit`), whatever its value."""
    users = [((USER, name),) for name in (user, None)] if user else [()]
    ids = [((CLIENT_ID, name),) for name in (client_id, None)] if client_id else [()]
    return any(quota in quotas.get((*of_id, *of_user), {}) for of_user in users for of_id in ids)


def limits_of_all(config: BrokerConfig) -> dict[str, Limit]:
    """Return the broker's configured limits on all clients together, by quota (`E18`)."""
    values = {
        PRODUCE: config.broker_quota_produce_bytes,
        FETCH: config.broker_quota_fetch_bytes,
        REQUEST_RATE: config.broker_quota_request_rate,
    }
    return {quota: Limit("", "", value) for quota, value in values.items() if value < MAX_LONG}


def quotas_in_force(quotas: ClientQuotas) -> frozenset[str]:
    """Return those of `QUOTAS` that are set for any entity (`E10`)."""
    return frozenset(key for values in quotas.values() for key in values).intersection(QUOTAS)


def _entities(user: str, client_id: str) -> list[tuple[QuotaEntity, tuple[str, str]]]:
    """Return the entities of a client, most specific first, each with the (user, client id) that shares its quota."""
    ordered: list[tuple[QuotaEntity, tuple[str, str]]] = []
    for each in (user, None):
        if client_id:
            ordered += [(((CLIENT_ID, name), (USER, each)), (user, client_id)) for name in (client_id, None)]
        ordered.append((((USER, each),), (user, "")))
    if client_id:
        ordered += [(((CLIENT_ID, name),), ("", client_id)) for name in (client_id, None)]
    return ordered
