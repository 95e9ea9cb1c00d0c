"""Responses of any length: each element is described once, and only the elements beyond the limit are rejected."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from rotunda.broker.ipc.request_channel import CLOSE_CONNECTION
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.routing import GROUP_TOPIC
from rotunda.broker.scheduling import slices
from rotunda.broker.scheduling.deferred import Deferred
from rotunda.shm.tables.process_slots import HANDLER
from tests.support.groups.requests import call
from tests.support.stepped_broker import Sent, SteppedBroker

POLICY_VIOLATION = 44
#: The limit of a response is 64 KiB.
short = pytest.mark.stepped({}, settings={"response.max.bytes": "65536"})
GROUPS = [f"group-{number}" for number in range(12)]


def asked(key: ApiKey, version: int, values: dict[str, Any]) -> tuple[int, int, bytes]:
    """Return a request as arguments of `Client.send_frame`."""
    return key, version, codec.encode_request(key, version, 7, "hostile", values)[4:]


def decoded(sent: Sent, version: int) -> Any:
    payload = sent.answer.payload
    return codec.decode_response(sent.api_key, version, payload, 4, len(payload))


def test_groups_of_all_handlers_are_described_once_in_their_order(stepped: SteppedBroker) -> None:
    stepped.create(GROUP_TOPIC, 4)
    values = {"groups": [*GROUPS, *GROUPS[::-1]] * 50, "include_authorized_operations": False}
    answer = call(stepped, stepped.client(), ApiKey.DESCRIBE_GROUPS, 5, values)
    assert [group.group_id for group in answer.groups] == GROUPS
    assert {group.group_state for group in answer.groups} == {"Dead"}


def test_requests_for_one_group_in_several_places_are_merged(stepped: SteppedBroker) -> None:
    stepped.create(GROUP_TOPIC, 4)

    def group(topics: list[tuple[str, list[int]]] | None) -> dict[str, Any]:
        named = topics and [{"name": name, "partition_indexes": indexes} for name, indexes in topics]
        return {"group_id": "group", "topics": named}

    values = {
        "groups": [group([("a", [0, 0, 1])]), group([("b", [5])]), group([("a", [2, 1])])],
        "require_stable": True,
    }
    answer = call(stepped, stepped.client(), ApiKey.OFFSET_FETCH, 8, values)
    [found] = answer.groups
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in found.topics] == [("a", [0, 1, 2]), ("b", [5])]
    everything = {"groups": [group([("a", [0])]), group(None)], "require_stable": False}
    [found] = call(stepped, stepped.client(), ApiKey.OFFSET_FETCH, 8, everything).groups
    assert (found.error_code, found.topics) == (0, ())


def test_a_resource_is_described_once_with_all_the_keys_that_are_asked_for(stepped: SteppedBroker) -> None:
    def resource(*keys: str) -> dict[str, Any]:
        return {"resource_type": 4, "resource_name": "1", "configuration_keys": list(keys) or None}

    values = {"resources": [resource("log.dirs"), resource("node.id"), resource("log.dirs")]}
    [result] = call(stepped, stepped.client(), ApiKey.DESCRIBE_CONFIGS, 4, values).results
    assert {config.name for config in result.configs} == {"log.dirs", "node.id"}
    values = {"resources": [resource("a"), resource()]}
    [result] = call(stepped, stepped.client(), ApiKey.DESCRIBE_CONFIGS, 4, values).results
    assert len(result.configs) > 100


@short
def test_elements_beyond_the_limit_of_a_response_are_rejected(broker: SteppedBroker) -> None:
    resources = [{"resource_type": 4, "resource_name": "1", "configuration_keys": None}]
    resources += [{"resource_type": 32, "resource_name": name, "configuration_keys": None} for name in GROUPS * 20]
    resources += [
        {"resource_type": 32, "resource_name": f"{number}", "configuration_keys": None} for number in range(2000)
    ]
    values = {"resources": resources, "include_synonyms": True, "include_documentation": True}
    sent = broker.client().send_frame(*asked(ApiKey.DESCRIBE_CONFIGS, 4, values), target=0)
    broker.settle()
    results = decoded(sent, 4).results
    assert len(results) == 1 + len(GROUPS) + 2000
    assert {result.error_code for result in results} == {0, POLICY_VIOLATION}
    refused = [result for result in results if result.error_code]
    assert len(refused) > 1500
    assert "response.max.bytes" in refused[0].error_message
    assert sent.answer.error_code == POLICY_VIOLATION


@short
def test_a_response_with_no_place_for_that_closes_its_connection(broker: SteppedBroker, caplog: Any) -> None:
    listed = [(f"group-{number}", "consumer", "Stable", "classic") for number in range(3000)]
    with mock.patch("rotunda.broker.apis.groups.list_groups.decode_listed", side_effect=lambda _: iter_once(listed)):
        sent = broker.client().send_frame(*asked(ApiKey.LIST_GROUPS, 4, {}), target=0)
        broker.settle()
    assert sent.answer.kind == CLOSE_CONNECTION
    assert "the response to its LIST_GROUPS exceeds 65536 bytes (response.max.bytes)" in caplog.text


def test_a_request_of_a_disconnected_client_is_abandoned(stepped: SteppedBroker) -> None:
    """But changes are completed, as in Kafka: a client may disconnect as soon as it has sent them."""
    client, looked_at = stepped.client(), []
    hosts = stepped.context.client_host_writer(client.processor)
    hosts.put(client.connection, "10.0.0.1")

    def listed(payload: bytes) -> slices.Work:
        del payload
        for number in range(1000):
            looked_at.append(number)
            stepped.clock.advance_ms(1)
            yield None
        return iter_once([])

    with mock.patch("rotunda.broker.apis.groups.list_groups.decode_listed", side_effect=listed):
        sent = client.send_frame(*asked(ApiKey.LIST_GROUPS, 4, {}), target=0)
        new = {"topics": [{"name": "made", "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 1000}
        client.send_frame(*asked(ApiKey.CREATE_TOPICS, 7, new))
        while not looked_at:
            stepped.settle(1)
        hosts.end(client.connection)
        stepped.settle(100)
    assert len(looked_at) < 100
    assert sent.answer.kind == CLOSE_CONNECTION
    assert stepped.parts(0).metadata.topic("made") is not None


def iter_once(value: Any) -> slices.Work:
    yield None
    return value


def test_a_question_in_slices_is_put_again_to_a_replacement(stepped: SteppedBroker) -> None:
    """The target dies after it has released the request and before its response."""
    asker, target = 0, 1

    def for_ever(payload: bytes) -> slices.Work:
        del payload
        yield Deferred()

    stepped.parts(target).tasks.register_sliced("list_groups", for_ever)
    sent = stepped.client().send_frame(*asked(ApiKey.LIST_GROUPS, 4, {}), target=asker)
    stepped.settle()
    assert not sent.answers
    stepped.replace(target)
    stepped.context.slots.mark_ready(HANDLER, target, 2)
    stepped.clock.advance_ms(1000)
    stepped.settle()
    assert decoded(sent, 4).error_code == 0
    assert len(sent.answers) == 1
