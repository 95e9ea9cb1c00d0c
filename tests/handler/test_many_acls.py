"""Thousands of ACLs in one request: created and deleted in slices, in one change, and once with deaths."""

from __future__ import annotations

from typing import Any

import pytest

from rotunda.broker.config.settings.authorization import STANDARD_AUTHORIZER
from rotunda.broker.metadata.metadata_cache import Changes
from rotunda.broker.metadata.store import entity_store, metadata_reader
from rotunda.broker.metadata.store.entity_store import EntityKind
from rotunda.broker.metadata.store.metadata_file import metadata_path
from rotunda.broker.metadata.store.metadata_reader import MetadataReader
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.scheduling import slices
from rotunda.broker.security.acl.acls import Acl
from rotunda.broker.steps import finished
from tests.support.call_clock import MOST_CALLS, CallClock, longest_turn, run_once
from tests.support.results import present
from tests.support.stepped_broker import Sent, SteppedBroker

ACLS = 2_000
VERSION = 3
CONTROLLER = 1


pytestmark = pytest.mark.stepped(
    {},
    handlers=1,
    settings={"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"},
    clock=CallClock,
)


def creation(number: int) -> dict[str, Any]:
    # One name has very many.
    return {
        "resource_type": 2, "resource_name": f"topic-{number % 2 and number}", "resource_pattern_type": 4,
        "principal": f"User:u{number}", "host": "*", "operation": 3, "permission_type": 3,
    }  # fmt: skip


def deletion(number: int, **others: Any) -> dict[str, Any]:
    return {
        "resource_type_filter": 2, "resource_name_filter": f"topic-{number % 2 and number}", "pattern_type_filter": 4,
        "principal_filter": f"User:u{number}", "host_filter": None, "operation": 1, "permission_type": 1, **others,
    }  # fmt: skip


def create(acls: int) -> bytes:
    return frame(ApiKey.CREATE_ACLS, {"creations": [creation(number) for number in range(acls)]})


def delete(filters: list[dict[str, Any]]) -> bytes:
    return frame(ApiKey.DELETE_ACLS, {"filters": filters})


def frame(key: ApiKey, values: dict[str, Any]) -> bytes:
    return codec.encode_request(key, VERSION, 7, "client", values)[4:]


def answered(sent: Sent) -> Any:
    payload = sent.answer.payload
    return codec.decode_response(ApiKey(sent.api_key), VERSION, payload, 4, len(payload))


def stored(broker: SteppedBroker) -> int:
    """Return the number of ACLs on disk."""
    asking = MetadataReader(metadata_path(broker.config.data_dir))
    delta = asking.read(0)
    asking.close()
    return 0 if delta is None else len(delta.entities.get(EntityKind.ACL, {}))


def in_force(broker: SteppedBroker, target: int) -> int:
    authorizer = present(broker.parts(target).metadata.authorizer)
    return len(authorizer)


def test_no_run_is_long_however_many_acls_are_created_and_deleted(broker: SteppedBroker) -> None:
    # Imports on the first use are not measured.
    longest_turn(broker, ApiKey.CREATE_ACLS, VERSION, create(1))
    longest_turn(broker, ApiKey.DELETE_ACLS, VERSION, delete([deletion(0)]))
    assert longest_turn(broker, ApiKey.CREATE_ACLS, VERSION, create(ACLS)) <= MOST_CALLS
    broker.settle()
    assert [stored(broker), in_force(broker, 0), in_force(broker, CONTROLLER)] == [ACLS] * 3
    open_filter = deletion(0, principal_filter=None, resource_name_filter=None)
    none = [{**open_filter, "host_filter": f"10.0.0.{number}"} for number in range(ACLS)]
    assert longest_turn(broker, ApiKey.DELETE_ACLS, VERSION, delete(none)) <= MOST_CALLS
    assert stored(broker) == ACLS
    one_each = [deletion(number) for number in range(ACLS)]
    assert longest_turn(broker, ApiKey.DELETE_ACLS, VERSION, delete(one_each)) <= MOST_CALLS
    broker.settle()
    assert [stored(broker), in_force(broker, 0), in_force(broker, CONTROLLER)] == [0] * 3


def test_of_many_acls_all_or_none_are_made_and_deleted_whenever_the_controller_dies(
    broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "BUDGET_NS", 1)
    acls = 300
    one_each = [deletion(number) for number in range(acls)]
    for key, request, expected in (
        (ApiKey.CREATE_ACLS, create(acls), acls),
        (ApiKey.DELETE_ACLS, delete(one_each), 0),
    ):
        before = acls - expected
        seen = set()
        turns = 0
        while True:
            sent = broker.client().send_frame(key, VERSION, request)
            for _ in range(turns):
                run_once(broker, CONTROLLER)
            broker.drain()
            seen.add((stored(broker), there := bool(sent.answers)))
            broker.replace(CONTROLLER)
            broker.settle(1000)
            results = answered(sent).results if key is ApiKey.CREATE_ACLS else answered(sent).filter_results
            assert {each.error_code for each in results} == {0}
            if key is ApiKey.DELETE_ACLS:
                assert [len(each.matching_acls) for each in results] == [1] * acls
            assert [stored(broker), in_force(broker, 0), in_force(broker, CONTROLLER)] == [expected] * 3
            broker.forget_clients()
            if there:
                break
            undo = delete(one_each) if key is ApiKey.CREATE_ACLS else create(acls)
            broker.client().send_frame(ApiKey.CREATE_ACLS if before else ApiKey.DELETE_ACLS, VERSION, undo)
            broker.settle(1000)
            assert stored(broker) == before
            turns += 1
        assert seen == {(before, False), (expected, False), (expected, True)}
        assert turns > 5


def test_each_filter_has_the_acls_that_it_matches(broker: SteppedBroker) -> None:
    """FilterIndex only omits ACLs that a filter cannot match; each result has the ACLs of its filter."""
    broker.client().send_frame(ApiKey.CREATE_ACLS, VERSION, create(20))
    broker.settle()
    filters = [
        deletion(3),
        deletion(3),
        deletion(0, resource_name_filter="topic-0-and-more", pattern_type_filter=2, principal_filter=None),
        deletion(0, resource_name_filter="topic-5", pattern_type_filter=1, principal_filter=None),
        deletion(0, resource_name_filter=None, principal_filter="User:u7"),
    ]
    sent = broker.client().send_frame(ApiKey.DELETE_ACLS, VERSION, delete(filters))
    broker.settle()
    found = [sorted(acl.principal for acl in each.matching_acls) for each in answered(sent).filter_results]
    of_topic_0 = sorted(f"User:u{number}" for number in range(0, 20, 2))
    assert found == [["User:u3"], ["User:u3"], of_topic_0, ["User:u5"], ["User:u7"]]
    assert stored(broker) == 7


def test_the_change_itself_is_a_few_statements_and_is_not_read_by_its_maker(
    broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An SQLite call is not divisible, for any duration: so statements are counted, and each may change one row."""
    reads: list[int] = []
    real = MetadataReader.read_in_steps

    def read(reader: MetadataReader, since: int, *, with_topics: bool = True) -> Any:
        if reader is broker.parts(CONTROLLER).metadata._reader:
            reads.append(since)
        return real(reader, since, with_topics=with_topics)

    monkeypatch.setattr(MetadataReader, "read_in_steps", read)
    statements: list[str] = []
    broker.controller._store._connection.set_trace_callback(statements.append)
    for key, request, expected in (
        (ApiKey.CREATE_ACLS, create(ACLS), ACLS),
        (ApiKey.DELETE_ACLS, delete([deletion(0, principal_filter=None, resource_name_filter=None)]), 0),
    ):
        statements.clear()
        broker.client().send_frame(key, VERSION, request)
        broker.settle(1000)
        changes = [number for number, each in enumerate(statements) if each.startswith("BEGIN IMMEDIATE")]
        assert len(changes) == 1
        assert len(statements) - changes[0] < 15
        assert [stored(broker), in_force(broker, 0), in_force(broker, CONTROLLER)] == [expected] * 3
    assert not reads


def test_an_interleaved_change_includes_the_acls(broker: SteppedBroker) -> None:
    """The controller has no further changes to apply, and each process has the ACLs exactly once."""
    controller = broker.controller
    acls = [Acl(2, f"t{number}", 3, "User:u", "*", 3, 3) for number in range(3)]
    steps = controller.acls.create(acls)
    before = controller.version
    while controller._store.change == before:
        next(steps)
    broker.create("beside")
    assert in_force(broker, CONTROLLER) == len(acls)
    finished(steps)
    assert in_force(broker, CONTROLLER) == len(acls)
    assert controller.version == controller._store.change == before + 2
    broker.announce()
    broker.settle()
    assert [stored(broker), in_force(broker, 0)] == [len(acls)] * 2


@pytest.mark.parametrize("is_far_behind", [False, True])
def test_a_handler_loads_very_many_in_steps_and_applies_them_at_once(
    broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch, *, is_far_behind: bool
) -> None:
    controller = broker.controller
    broker.settle()
    if is_far_behind:
        for module in (entity_store, metadata_reader):
            monkeypatch.setattr(module, "RECORDED_CHANGES", 0)
    finished(controller.acls.create([Acl(2, f"t{number}", 3, "User:u", "*", 3, 3) for number in range(ACLS)]))
    steps = broker.parts(0).metadata.refresh_in_steps(Changes([], [], []))
    seen = [in_force(broker, 0) for _ in steps]
    assert len(seen) > ACLS // 128
    assert set(seen) == {0}
    assert in_force(broker, 0) == ACLS
