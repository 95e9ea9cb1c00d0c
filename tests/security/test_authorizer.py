"""Authorization by ACLs as Kafka's StandardAuthorizer decides; filters of ACLs; validation of new ACLs."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from rotunda.broker.apis.table import API_TABLE
from rotunda.broker.errors import ApiError
from rotunda.broker.security.acl.acls import (
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    acls_of,
    check_new,
    stored_name,
)
from rotunda.broker.security.acl.authorizer import Authorizer, super_users_of
from rotunda.broker.security.acl.checks import CHECKS, FREE, rejection
from rotunda.broker.security.session import Session
from rotunda.broker.steps import finished

ALICE, BOB = Session("alice", "10.0.0.1"), Session("bob", "10.0.0.2")
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
O = Operation  # noqa: E741 - short in tables


def acl(
    name: str,
    operation: int = O.READ,
    permission: int = ALLOW,
    *,
    pattern: int = LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    resource_type: int = TOPIC,
) -> Acl:
    return Acl(resource_type, name, pattern, principal, host, operation, permission)


def authorizer(*acls: Acl, supers: str = "", allow_without_acls: bool = False) -> Authorizer:
    made = Authorizer(super_users_of(supers), allow_without_acls=allow_without_acls)
    finished(made.replace(acls))
    return made


@pytest.mark.parametrize(
    ("acls", "operation", "name", "expected"),
    [
        ([], O.READ, "t", False),
        ([acl("t")], O.READ, "t", True),
        ([acl("t")], O.READ, "tt", False),
        ([acl("t")], O.WRITE, "t", False),
        ([acl("*")], O.READ, "anything", True),
        ([acl("t", pattern=PREFIXED)], O.READ, "tt", True),
        ([acl("t", pattern=PREFIXED)], O.READ, "t", True),
        ([acl("tt", pattern=PREFIXED)], O.READ, "t", False),
        ([acl("t", O.ALL)], O.ALTER, "t", True),
        # Allowing these implies describe, denying them does not deny it.
        *[([acl("t", each)], O.DESCRIBE, "t", True) for each in (O.READ, O.WRITE, O.DELETE, O.ALTER, O.DESCRIBE)],
        *[([acl("t", each)], O.DESCRIBE, "t", False) for each in (O.CREATE, O.ALTER_CONFIGS, O.DESCRIBE_CONFIGS)],
        ([acl("t", O.ALTER_CONFIGS)], O.DESCRIBE_CONFIGS, "t", True),
        ([acl("t", O.ALTER)], O.DESCRIBE_CONFIGS, "t", False),
        ([acl("t", O.READ, DENY), acl("t", O.DESCRIBE)], O.DESCRIBE, "t", True),
        # A denial counts at any position.
        ([acl("t"), acl("t", O.READ, DENY)], O.READ, "t", False),
        ([acl("t"), acl("*", O.ALL, DENY)], O.READ, "t", False),
        ([acl("topic"), acl("to", O.READ, DENY, pattern=PREFIXED)], O.READ, "topic", False),
        ([acl("t", principal="User:*")], O.READ, "t", True),
        ([acl("t", principal="User:bob")], O.READ, "t", False),
        ([acl("t", host="10.0.0.1")], O.READ, "t", True),
        ([acl("t", host="10.0.0.2")], O.READ, "t", False),
        # V12: ranges of addresses, of which bits after the prefix and both ends count.
        ([acl("t", host="10.9.9.9/8")], O.READ, "t", True),
        ([acl("t", host="10.0.0.1/32")], O.READ, "t", True),
        ([acl("t", host="10.0.0.0/31")], O.READ, "t", True),
        ([acl("t", host="10.0.0.2/31")], O.READ, "t", False),
        ([acl("t", host="::/0")], O.READ, "t", False),
        ([acl("t", host="no/range")], O.READ, "t", False),
        ([acl("t"), acl("t", O.READ, DENY, host="0.0.0.0/0")], O.READ, "t", False),
        ([acl("t", resource_type=GROUP)], O.READ, "t", False),
        ([acl("t", principal="Group:alice")], O.READ, "t", False),
    ],
)
def test_acls_decide_as_kafkas_authorizer(acls: list[Acl], operation: int, name: str, expected: bool) -> None:
    assert authorizer(*acls).allows(ALICE, operation, TOPIC, name) is expected


def test_v12_ranges_of_ipv6_match_ipv6_addresses_only() -> None:
    made = authorizer(acl("t", host="2001:db8::/32"))
    hosts = ("2001:db8::1", "2001:db9::1", "10.0.0.1", "")
    assert [made.allows(Session("alice", each), O.READ, TOPIC, "t") for each in hosts] == [True, False, False, False]


def test_names_of_any_length_are_decided_and_not_remembered() -> None:
    """Clients choose them: a client without rights could fill the memory otherwise."""
    authorizer = Authorizer()
    session = Session("mallory", "127.0.0.1")
    tracemalloc.start()
    for number in range(50):
        assert not authorizer.allows(session, Operation.READ, ResourceType.TOPIC, str(number) + "x" * 1_000_000)
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held_bytes < 5_000_000
    assert authorizer.denied == 50


def test_super_users_may_do_everything() -> None:
    made = authorizer(acl("*", O.ALL, DENY), supers="User:bob; User:alice;")
    assert made.allows(ALICE, O.WRITE, TOPIC, "t")
    assert not made.allows(Session("eve", "10.0.0.1"), O.WRITE, TOPIC, "t")


def test_where_no_acl_is_found_everyone_may_if_that_is_set() -> None:
    """It is an ACL of the resource that counts, whomever it is about."""
    made = authorizer(acl("t", principal="User:carol"), acl("p", pattern=PREFIXED), allow_without_acls=True)
    assert made.allows(BOB, O.READ, TOPIC, "free")
    assert not made.allows(BOB, O.READ, TOPIC, "t")
    assert not made.allows(BOB, O.READ, TOPIC, "paper")
    assert made.allows(BOB, O.READ, GROUP, "t")


def test_changes_count_at_once() -> None:
    made = authorizer(acl("t"))
    assert made.allows(ALICE, O.READ, TOPIC, "t")
    made.update([acl("t", O.READ, DENY), acl("t")], [])
    assert not made.allows(ALICE, O.READ, TOPIC, "t")
    made.update([], [acl("t", O.READ, DENY), acl("never-there")])
    assert made.allows(ALICE, O.READ, TOPIC, "t")
    made.update([], [acl("t")])
    assert not made.allows(ALICE, O.READ, TOPIC, "t")
    assert len(made) == 0


def test_an_index_decides_as_a_look_at_all_acls() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    names = ["a", "ab", "abc", "b", "ba", "*"]
    for _ in range(300):
        acls = [
            acl(
                chance.choice(names),
                chance.choice([O.READ, O.WRITE, O.ALL, O.DESCRIBE]),
                chance.choice([ALLOW, ALLOW, DENY]),
                pattern=chance.choice([LITERAL, PREFIXED]),
                principal=chance.choice(["User:alice", "User:bob", "User:*"]),
                host=chance.choice(["*", "10.0.0.1"]),
            )
            for _ in range(chance.randrange(6))
        ]
        made = authorizer(*acls, allow_without_acls=chance.random() < 0.5)
        for session, operation, name in [(ALICE, O.READ, "abc"), (BOB, O.DESCRIBE, "ab"), (ALICE, O.WRITE, "b")]:
            assert made.allows(session, operation, TOPIC, name) is _decided(made, acls, session, operation, name), acls


def _decided(made: Authorizer, acls: list[Acl], session: Session, operation: int, name: str) -> bool:
    about = [each for each in acls if AclFilter(TOPIC, name, PatternType.MATCH, None, None, O.ANY, 1).matches(each)]
    mine = [each for each in about if each.principal in (session.principal, "User:*")]
    mine = [each for each in mine if each.host in (session.host, "*")]
    if any(each.permission == DENY and each.operation in (operation, O.ALL) for each in mine):
        return False
    implied = {O.READ, O.WRITE, O.DESCRIBE} if operation == O.DESCRIBE else {operation}
    if any(each.permission == ALLOW and each.operation in implied | {O.ALL} for each in mine):
        return True
    return not about and made._allow_without_acls


@pytest.mark.parametrize(
    ("acls", "expected"),
    [
        ([], False),
        ([acl("t", O.WRITE)], True),
        ([acl("t", O.WRITE), acl("t", O.WRITE, DENY)], False),
        ([acl("t", O.WRITE), acl("t", O.WRITE, DENY, pattern=PREFIXED)], False),
        ([acl("tt", O.WRITE, pattern=PREFIXED), acl("t", O.ALL, DENY, pattern=PREFIXED)], False),
        ([acl("t", O.WRITE, pattern=PREFIXED), acl("t", O.WRITE, DENY)], True),
        ([acl("*", O.WRITE), acl("t", O.WRITE, DENY)], True),
        ([acl("t", O.WRITE), acl("*", O.WRITE, DENY)], False),
        ([acl("t", O.READ)], False),
        ([acl("t", O.WRITE, principal="User:bob")], False),
    ],
)
def test_whoever_may_write_to_any_topic_gets_a_producer_id(acls: list[Acl], expected: bool) -> None:
    """KIP-679."""
    assert authorizer(*acls).allows_any(ALICE, O.WRITE, TOPIC) is expected


def test_super_users_get_producer_ids() -> None:
    made = authorizer(acl("*", O.ALL, DENY), supers="User:alice")
    assert made.allows_any(ALICE, O.WRITE, TOPIC)


@pytest.mark.parametrize(
    ("name", "pattern", "matched"),
    [
        ("abc", PatternType.MATCH, {"abc", "*", "ab-prefixed"}),
        ("abc", LITERAL, {"abc"}),
        ("ab", PREFIXED, {"ab-prefixed"}),
        ("ab", PatternType.ANY, {"ab-prefixed"}),
        (None, PatternType.ANY, {"abc", "*", "ab-prefixed", "b-prefixed"}),
        (None, PREFIXED, {"ab-prefixed", "b-prefixed"}),
    ],
)
def test_filters_describe_acls_as_kafkas(name: str | None, pattern: int, matched: set[str]) -> None:
    there = {
        "abc": acl("abc"),
        "*": acl("*"),
        "ab-prefixed": acl("ab", pattern=PREFIXED),
        "b-prefixed": acl("b", pattern=PREFIXED),
    }
    wanted = AclFilter(ResourceType.ANY, name, pattern, None, None, O.ANY, Permission.ANY)
    assert {key for key, each in there.items() if wanted.matches(each)} == matched


def test_filters_look_at_who_where_and_what() -> None:
    everything = AclFilter(TOPIC, None, PatternType.ANY, None, None, O.ANY, Permission.ANY)
    there = acl("t", host="10.0.0.1")
    assert everything.matches(there)
    for other in (
        {"resource_type": GROUP},
        {"principal": "User:bob"},
        {"host": "*"},
        {"host": "10.0.0.0/8"},
        {"operation": O.WRITE},
        {"permission": DENY},
    ):
        assert not everything._replace(**other).matches(there), other


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"resource_type": ResourceType.CLUSTER}, "only valid name for the CLUSTER resource is kafka-cluster"),
        ({"name": ""}, "Invalid empty resource name"),
        ({"resource_type": 1}, "Invalid resourceType ANY"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"pattern_type": PatternType.MATCH}, "Invalid patternType MATCH"),
        ({"operation": 1}, "Invalid operation ANY"),
        ({"permission": 1}, "Invalid permissionType ANY"),
        ({"principal": "alice"}, "Could not parse principal"),
        ({"host": ""}, "Host pattern cannot be null or empty"),
        *[
            ({"host": each}, "Invalid CIDR notation")
            for each in ("10.0.0.0/33", "10.0.0/8", "::/129", "a/8", "10.0.0.0/255.0.0.0", "10.0.0.0/", "/8", "::/0/0")
        ],
    ],
)
def test_an_acl_that_means_nothing_is_rejected(wrong: dict[str, int | str], words: str) -> None:
    check_new(acl("t"))
    with pytest.raises(ApiError, match=words):
        check_new(acl("t")._replace(**wrong))


def test_v11_ranges_need_a_metadata_version() -> None:
    check_new(acl("t", host="2001:db8::1/32"))
    for host in ("10.0.0.0/8", "10.0.0.0/33"):
        with pytest.raises(ApiError, match=r"require metadata version 4\.4-IV1") as caught:
            check_new(acl("t", host=host), allows_ranges=False)
        assert caught.value.code == 35
    check_new(acl("t", host="host"), allows_ranges=False)


def test_an_acl_is_read_as_it_was_stored() -> None:
    strange = acl('"t,é\u0000', principal="User:CN=a,O=b")
    assert acls_of([stored_name(strange)] * 2) == [strange] * 2


def test_each_api_that_is_served_checks_something_or_is_free() -> None:
    assert {api.key for api in API_TABLE} == CHECKS.keys() | FREE
    assert not CHECKS.keys() & FREE


def test_a_denial_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    made = authorizer(acl("t"))
    for _ in range(3):
        assert rejection(made, BOB, 0, TOPIC, "t") == 29
    assert made.denied == 3
    assert not made.allows(BOB, O.READ, TOPIC, "t", is_asked_for=False)
    assert made.denied == 3
    [line] = caplog.messages
    assert line == "Principal = User:bob is Denied operation = WRITE from host = 10.0.0.2 on resource = Topic:LITERAL:t"
