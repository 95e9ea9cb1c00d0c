"""Which quota holds for a client: Kafka's order of the entities that one may be set for (`E09`).

Pure functions over plain values. As in Kafka a client that has not authenticated is the user ANONYMOUS.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from rotunda.broker.config.keys import MAX_LONG
from rotunda.broker.metadata.configs.client_quotas import CLIENT_ID, USER, ClientQuotas, QuotaEntity
from rotunda.shm.tables.quota_tables import FETCH, PRODUCE, QUOTAS, REQUEST_RATE

if TYPE_CHECKING:
    from rotunda.broker.config.broker_config import BrokerConfig


class Limit(NamedTuple):
    """What an entity may use of one quota in a second: bytes, partitions, or percents of the time of one thread.

    All clients with the same ``user`` and ``client_id`` share it; an empty one stands for whoever it may be, and two
    for everybody.
    """

    user: str
    client_id: str
    value: float

    @property
    def is_of_all(self) -> bool:
        """Whether all clients share it."""
        return not (self.user or self.client_id)

    def entity(self, quota: str) -> int:
        """Return the hash by which every process finds what has been used of it: never 0, and not negative."""
        text = f"{quota}\0{self.user}\0{self.client_id}"
        return int.from_bytes(blake2b(text.encode(errors="replace"), digest_size=8).digest(), "big") >> 1 or 1


def limit_of(quotas: ClientQuotas, quota: str, user: str, client_id: str) -> Limit | None:
    """Return the most specific quota of that name that is set for a client, or None: it may use what it likes.

    As in Kafka a client that gives no id has no quota but its user's.
    """
    for entity, whom in _entities(user, client_id):
        value = quotas.get(entity, {}).get(quota)
        if value is not None:
            return Limit(*whom, value)
    return None


def is_set(quotas: ClientQuotas, quota: str, user: str, client_id: str) -> bool:
    """Return whether a quota is set that those of ``user`` and ``client_id`` share (`Limit`), whatever its value."""
    users = [((USER, name),) for name in (user, None)] if user else [()]
    ids = [((CLIENT_ID, name),) for name in (client_id, None)] if client_id else [()]
    return any(quota in quotas.get((*of_id, *of_user), {}) for of_user in users for of_id in ids)


def limits_of_all(config: BrokerConfig) -> dict[str, Limit]:
    """Return, by quota, what all clients together may use: the limits of the broker that are set (`E18`)."""
    values = {
        PRODUCE: config.broker_quota_produce_bytes,
        FETCH: config.broker_quota_fetch_bytes,
        REQUEST_RATE: config.broker_quota_request_rate,
    }
    return {quota: Limit("", "", value) for quota, value in values.items() if value < MAX_LONG}


def quotas_in_force(quotas: ClientQuotas) -> frozenset[str]:
    """Return which of `QUOTAS` are set for anybody (`E10`)."""
    return frozenset(key for values in quotas.values() for key in values).intersection(QUOTAS)


def _entities(user: str, client_id: str) -> list[tuple[QuotaEntity, tuple[str, str]]]:
    """Return whom a quota for this client may be set for, most specific first, and who shares it."""
    ordered: list[tuple[QuotaEntity, tuple[str, str]]] = []
    for each in (user, None):
        if client_id:
            ordered += [(((CLIENT_ID, name), (USER, each)), (user, client_id)) for name in (client_id, None)]
        ordered.append((((USER, each),), (user, "")))
    if client_id:
        ordered += [(((CLIENT_ID, name),), ("", client_id)) for name in (client_id, None)]
    return ordered
