"""DescribeClientQuotas and AlterClientQuotas: persisted, described by filter, and rejected as in Kafka."""

from __future__ import annotations

from typing import Any

import pytest

from rotunda.broker.apis.cluster.controller_access import ALTERED_AT_ONCE
from rotunda.broker.errors import ApiError
from rotunda.broker.metadata.configs.quota_entities import DEFAULT, EXACT, SPECIFIED
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from tests.support.admin_cluster import AdminCluster
from tests.support.fakes import failing

Entity = dict[str, str | None]
VERSIONS = range(2)


def entry(entity: Entity, quotas: dict[str, float | None]) -> dict[str, Any]:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in quotas.items()],
    }


def alter_all(
    cluster: AdminCluster, entries: list[dict[str, Any]], version: int = 1, *, validate_only: bool = False
) -> list[tuple[int, str | None]]:
    fields = {"entries": entries, "validate_only": validate_only}
    response = cluster.call(ApiKey.ALTER_CLIENT_QUOTAS, version, fields)
    return [(each.error_code, each.error_message) for each in response.entries]


def alter(cluster: AdminCluster, entity: Entity, quotas: dict[str, float | None], **options: Any) -> Any:
    [outcome] = alter_all(cluster, [entry(entity, quotas)], **options)
    return outcome


def describe(cluster: AdminCluster, *matches: tuple[str, int, str | None], strict: bool = False) -> Any:
    components = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in matches]
    fields = {"components": components, "strict": strict}
    response = cluster.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, fields)
    if response.error_code:
        assert response.entries is None
        return response.error_code, response.error_message
    return {
        tuple((part.entity_type, part.entity_name) for part in each.entity): {v.key: v.value for v in each.values}
        for each in response.entries
    }


def everything(cluster: AdminCluster) -> Any:
    return describe(cluster)


ALICE = (("user", "alice"),)
ALICE_APP = (("client-id", "app"), ("user", "alice"))
ANYBODY = (("user", None),)
ANY_APP = (("client-id", None),)
ADDRESS = (("ip", "10.0.0.1"),)


@pytest.fixture
def filled(cluster: AdminCluster) -> AdminCluster:
    rate: dict[str, float | None] = {"producer_byte_rate": 1024.0}
    for entity in (ALICE, ALICE_APP, ANYBODY, ANY_APP):
        assert alter(cluster, dict(entity), rate) == (0, None)
    assert alter(cluster, dict(ADDRESS), {"connection_creation_rate": 5.0}) == (0, None)
    return cluster


@pytest.mark.parametrize("version", VERSIONS)
def test_quotas_are_set_changed_and_removed(cluster: AdminCluster, version: int) -> None:
    """A12: a quota is stored under its entity, with the parts in any order."""
    rates: dict[str, float | None] = {"consumer_byte_rate": 2048.0, "request_percentage": 12.5}
    assert alter(cluster, {"user": "alice", "client-id": "app"}, rates, version=version) == (0, None)
    assert everything(cluster) == {ALICE_APP: {"consumer_byte_rate": 2048.0, "request_percentage": 12.5}}
    change: dict[str, float | None] = {"consumer_byte_rate": None, "request_percentage": 7.5}
    assert alter(cluster, {"client-id": "app", "user": "alice"}, change, version=version) == (0, None)
    assert everything(cluster) == {ALICE_APP: {"request_percentage": 7.5}}
    assert alter(cluster, {"client-id": "app", "user": "alice"}, {"request_percentage": None}) == (0, None)
    assert everything(cluster) == {}
    assert cluster.announced == [1, 2, 3]


def test_quotas_are_there_after_a_restart_and_in_every_process(filled: AdminCluster) -> None:
    told = everything(filled)
    assert set(told) == {ALICE, ALICE_APP, ANYBODY, ANY_APP, ADDRESS}
    filled.restart_controller()
    assert everything(filled) == told
    filled.settle()
    assert [cache.client_quotas for cache in filled.handlers] == [told] * 3


def test_only_checking_and_changing_nothing_write_nothing(filled: AdminCluster) -> None:
    before, change = everything(filled), filled.controller.version
    assert alter(filled, dict(ALICE), {"producer_byte_rate": 1.0}, validate_only=True) == (0, None)
    assert alter(filled, dict(ALICE), {"producer_byte_rate": 1024.0}) == (0, None)
    assert alter(filled, {"user": "nobody"}, {"producer_byte_rate": None}) == (0, None)
    assert (everything(filled), filled.controller.version) == (before, change)


@pytest.mark.parametrize(
    ("matches", "strict", "found"),
    [
        ([], False, {ALICE, ALICE_APP, ANYBODY, ANY_APP, ADDRESS}),
        ([], True, set()),
        ([("user", EXACT, "alice")], False, {ALICE, ALICE_APP}),
        ([("user", EXACT, "alice")], True, {ALICE}),
        ([("user", DEFAULT, None)], False, {ANYBODY}),
        ([("user", SPECIFIED, None)], True, {ALICE, ANYBODY}),
        ([("user", SPECIFIED, None), ("client-id", EXACT, "app")], True, {ALICE_APP}),
        ([("client-id", DEFAULT, None)], True, {ANY_APP}),
        ([("ip", SPECIFIED, None)], False, {ADDRESS}),
        ([("ip", EXACT, "10.0.0.2")], False, set()),
    ],
)
def test_a_filter_describes_its_matches(filled: AdminCluster, matches: Any, strict: bool, found: Any) -> None:
    assert set(describe(filled, *matches, strict=strict)) == found


@pytest.mark.parametrize(
    ("matches", "error", "says"),
    [
        ([("", EXACT, "x")], 42, "empty entity type"),
        ([("user", EXACT, "x"), ("user", DEFAULT, None)], 42, "more than once"),
        ([("group", EXACT, "x")], 35, "Unsupported entity type group"),
        ([("user", EXACT, None)], 42, "set match string to null"),
        ([("user", DEFAULT, "x")], 42, "MATCH_TYPE_DEFAULT, but also specified a match string: x"),
        ([("user", SPECIFIED, "x")], 42, "MATCH_TYPE_SPECIFIED, but also"),
        ([("user", 7, None)], 42, "Unknown match type 7"),
        ([("ip", DEFAULT, None), ("user", DEFAULT, None)], 42, "IP filter component"),
    ],
)
def test_a_filter_that_makes_no_sense_is_rejected(cluster: AdminCluster, matches: Any, error: int, says: str) -> None:
    code, message = describe(cluster, *matches)
    assert code == error
    assert says in message


@pytest.mark.parametrize(
    ("entity", "quotas", "says"),
    [
        ({}, {"producer_byte_rate": 1.0}, "Invalid empty client quota entity"),
        ({"group": "g"}, {"producer_byte_rate": 1.0}, "Unhandled client quota entity type: group"),
        ({"user": ""}, {"producer_byte_rate": 1.0}, "Empty user not supported"),
        ({"ip": "10.0.0.1", "user": "a"}, {"connection_creation_rate": 1.0}, "should not be combined"),
        ({"ip": "10.0.0.300"}, {"connection_creation_rate": 1.0}, "10.0.0.300 is not a valid IP or resolvable host"),
        ({"ip": "no host"}, {"connection_creation_rate": 1.0}, "no host is not a valid IP or resolvable host"),
        ({"ip": "-a"}, {"connection_creation_rate": 1.0}, "-a is not a valid IP or resolvable host"),
        ({"ip": "10.0.0.1"}, {"producer_byte_rate": 1.0}, "Invalid configuration key producer_byte_rate"),
        ({"user": "a"}, {"connection_creation_rate": 1.0}, "Invalid configuration key connection_creation_rate"),
        ({"user": "a"}, {"producer_byte_rate": -1.0}, "must be greater than 0, but it is -1.0"),
        ({"user": "a"}, {"producer_byte_rate": float("nan")}, "must be greater than 0"),
        ({"user": "a"}, {"producer_byte_rate": 1.5}, "cannot be a fractional value"),
        ({"user": "a"}, {"producer_byte_rate": 1e19}, "too large for a LONG"),
        ({"ip": None}, {"connection_creation_rate": 3e9}, "too large for an INT"),
    ],
)
def test_quotas_that_kafka_rejects_are_rejected(cluster: AdminCluster, entity: Any, quotas: Any, says: str) -> None:
    code, message = alter(cluster, entity, quotas)
    assert code == ErrorCode.INVALID_REQUEST
    assert says in message
    assert everything(cluster) == {}


def test_one_bad_entity_keeps_no_other_from_its_quota(cluster: AdminCluster) -> None:
    good, bad = entry({"user": "good"}, {"producer_byte_rate": 1.0}), entry({"user": "bad"}, {"typo": 1.0})
    twice = entry({"user": "twice"}, {"producer_byte_rate": 1.0})
    same_key = entry({"user": "b"}, {"producer_byte_rate": 1.0})
    same_key["ops"] *= 2
    outcomes = alter_all(cluster, [good, bad, twice, twice, same_key])
    assert [code for code, _ in outcomes] == [0, 42, 42, 42, 42]
    assert "duplicate entity" in str(outcomes[2][1])
    assert "Duplicate quota key producer_byte_rate" in str(outcomes[4][1])
    assert everything(cluster) == {(("user", "good"),): {"producer_byte_rate": 1.0}}


def test_largest_values_are_accepted(cluster: AdminCluster) -> None:
    """Kafka's own default for a byte rate is the largest LONG, which is one more as a double."""
    assert alter(cluster, {"user": "a"}, {"producer_byte_rate": float(2**63 - 1)}) == (0, None)
    assert alter(cluster, {"ip": None}, {"connection_creation_rate": float(2**31 - 1)}) == (0, None)
    assert alter(cluster, {"user": "a"}, {"request_percentage": 0.01}) == (0, None)


def test_many_entities_are_changed_a_few_with_one_change(cluster: AdminCluster) -> None:
    """A rejected entity does not affect the others of its change."""
    many = [entry({"user": f"user-{number}"}, {"producer_byte_rate": 5.0}) for number in range(2 * ALTERED_AT_ONCE + 1)]
    many[3]["ops"][0]["key"] = "no_such_quota"
    before = cluster.controller.version
    outcomes = alter_all(cluster, many)
    assert [number for number, (error, _) in enumerate(outcomes) if error] == [3]
    assert cluster.controller.version == before + 3
    assert len(describe(cluster)) == len(many) - 1


def test_a_change_of_many_that_cannot_be_written_is_rejected_to_each(
    cluster: AdminCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster.controller._store, "_before_change", failing(ApiError(ErrorCode.KAFKA_STORAGE_ERROR)))
    many = [entry({"user": f"user-{number}"}, {"producer_byte_rate": 5.0}) for number in range(3)]
    assert [error for error, _ in alter_all(cluster, many)] == [ErrorCode.KAFKA_STORAGE_ERROR] * 3
    assert describe(cluster) == {}
