"""The quota of a client among those of its user and client id (`E09`)."""

from __future__ import annotations

import pytest

from rotunda.broker.metadata.configs.quota_entities import CLIENT_ID, USER, ClientQuotas
from rotunda.broker.quotas.entities import Limit, limit_of, quotas_in_force
from rotunda.broker.security.session import ANONYMOUS_USER

QUOTA = "producer_byte_rate"

#: Most specific first: the entities of a quota, and the clients that share it.
LEVELS = [
    (((CLIENT_ID, "app"), (USER, ANONYMOUS_USER)), (ANONYMOUS_USER, "app")),
    (((CLIENT_ID, None), (USER, ANONYMOUS_USER)), (ANONYMOUS_USER, "app")),
    (((USER, ANONYMOUS_USER),), (ANONYMOUS_USER, "")),
    (((CLIENT_ID, "app"), (USER, None)), (ANONYMOUS_USER, "app")),
    (((CLIENT_ID, None), (USER, None)), (ANONYMOUS_USER, "app")),
    (((USER, None),), (ANONYMOUS_USER, "")),
    (((CLIENT_ID, "app"),), ("", "app")),
    (((CLIENT_ID, None),), ("", "app")),
]


@pytest.mark.parametrize("level", range(len(LEVELS)))
def test_e09_the_most_specific_wins(level: int) -> None:
    quotas: ClientQuotas = {entity: {QUOTA: float(1 + n)} for n, (entity, _) in enumerate(LEVELS) if n >= level}
    assert limit_of(quotas, QUOTA, ANONYMOUS_USER, "app") == Limit(*LEVELS[level][1], 1.0 + level)


def test_e09_others_have_no_quota() -> None:
    quotas: ClientQuotas = {((CLIENT_ID, "other"),): {QUOTA: 1.0}, ((USER, "alice"),): {QUOTA: 1.0}}
    assert limit_of(quotas, QUOTA, ANONYMOUS_USER, "app") is None


def test_e09_a_client_without_an_id_has_its_users_quota_alone() -> None:
    quotas: ClientQuotas = {((CLIENT_ID, None),): {QUOTA: 1.0}}
    assert limit_of(quotas, QUOTA, ANONYMOUS_USER, "") is None
    assert limit_of({**quotas, ((USER, None),): {QUOTA: 2.0}}, QUOTA, ANONYMOUS_USER, "") == Limit(
        ANONYMOUS_USER, "", 2.0
    )


def test_e10_quotas_of_addresses_are_none_of_clients() -> None:
    assert quotas_in_force({(("ip", "127.0.0.1"),): {"connection_creation_rate": 1.0}}) == frozenset()
    assert quotas_in_force({((USER, None),): {QUOTA: 1.0}}) == {QUOTA}


def test_entities_are_found_by_different_numbers() -> None:
    limits = [Limit("", "app", 1), Limit("app", "", 1), Limit("", "apple", 1), Limit("", "app", 2)]
    assert len({limit.entity(QUOTA) for limit in limits}) == 3
