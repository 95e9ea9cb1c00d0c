"""Dispatch of requests, completion of responses by other processes, and requests pending at a stop."""

from __future__ import annotations

import pytest
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from rotunda.broker.apis import table
from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.apis.not_served import not_served
from rotunda.broker.apis.table import API_TABLE, advertised, describe_markdown
from rotunda.broker.ipc.request import Request
from rotunda.broker.ipc.request_channel import CLOSE_CONNECTION, SEND
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.primitives import MOST_ELEMENTS
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import SteppedBroker, batch_for, produced
from tests.support.wire_messages import API_VERSIONS, METADATA, metadata_body


def test_e07_a_key_is_dispatched_by_the_table_and_one_that_is_missing_closes(
    stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    real = table.APIS[METADATA]

    def answer(request: Request, broker: BrokerContext, body: object) -> object:
        asked.append(METADATA)
        assert real.function is not None
        return real.function(request, broker, body)

    monkeypatch.setitem(table.APIS, METADATA, real._replace(function=answer))
    client = stepped.client()
    first = client.send(METADATA, 4, metadata_body(["topic"]))
    stepped.settle()
    assert (first.answer.kind, asked) == (SEND, [METADATA])
    monkeypatch.delitem(table.APIS, METADATA)
    second = client.send(METADATA, 4, metadata_body(["other"]))
    other = stepped.client().send(API_VERSIONS, 0, b"")
    stepped.settle()
    assert second.answer.kind == CLOSE_CONNECTION
    assert other.answer.kind == SEND
    assert asked == [METADATA]


def test_d05_an_idle_handler_sleeps_300_ms_at_most(stepped: SteppedBroker) -> None:
    assert [stepped.handlers[index].wait_ms() for index in (0, 1)] == [300, 300]


def test_e20_ordinary_clients_do_not_produce_to_internal_topics(stepped: SteppedBroker) -> None:
    stepped.create("__consumer_offsets", 4)
    sent = stepped.client().produce([("__consumer_offsets", 0, record_batch([b"foreign"]))])
    stepped.settle()
    assert produced(sent) == [(17, -1)]
    assert stepped.end("__consumer_offsets", 0) == 0


def test_e07_no_key_is_registered_twice() -> None:
    assert len({api.key for api in table.API_TABLE}) == len(table.API_TABLE) == len(table.APIS)
    assert {key for key, _, _ in table.advertised(has_telemetry=True)} == set(table.APIS)


def test_e03_a_request_of_one_handler_gets_its_response_in_the_same_run(stepped: SteppedBroker) -> None:
    (own, *_) = stepped.owned_by("topic", 0)
    sent = stepped.client().produce([batch_for(own, b"alone")])
    assert sent.target == 0
    stepped.run_once(0)
    stepped.drain()
    assert produced(sent) == [(0, 0)]


def test_e03_a_forwarded_request_gets_its_response_from_its_first_handler(stepped: SteppedBroker) -> None:
    """The other owner's response arrives as a message; the request's own handler completes it in a later turn."""
    own, foreign = stepped.owned_by("topic", 0)[0], stepped.owned_by("topic", 1)[0]
    batch = record_batch([b"shared"])
    sent = stepped.client().produce([("topic", own, batch), ("topic", foreign, batch)])
    assert sent.target == 0
    for index in (0, 1):
        stepped.run_once(index)
        stepped.drain()
        assert sent.answers == []
    assert (stepped.end("topic", own), stepped.end("topic", foreign)) == (1, 1)
    stepped.run_once(0)
    stepped.drain()
    assert produced(sent) == [(0, 0), (0, 0)]


def test_e05_requests_still_queued_at_a_stop_are_left_unanswered_and_change_nothing(stepped: SteppedBroker) -> None:
    """A stopped target has completed every request it read; unread ones were never acknowledged."""
    client = stepped.client()
    (own, *_) = stepped.owned_by("topic", 0)
    taken = client.produce([batch_for(own, b"taken")])
    stepped.run_once(0)
    queued = client.produce([batch_for(own, b"queued")])
    stepped.parts(0).partitions.log_manager.close(clean=True)
    stepped.drain()
    assert produced(taken) == [(0, 0)]
    assert queued.answers == []
    assert stepped.values("topic", own) == [b"taken"]


@pytest.mark.parametrize("version", [4, 13])
def test_a_request_of_too_many_elements_is_rejected_with_an_error_if_its_response_has_one(
    stepped: SteppedBroker, version: int
) -> None:
    client = stepped.client()
    topics = [{"name": "t"}] * (MOST_ELEMENTS + 1)
    frame = codec.encode_request(ApiKey.METADATA, version, 1, "me", {"topics": topics})
    sent = client.send_frame(ApiKey.METADATA, version, frame[4:], 0)
    stepped.settle()
    if version < 13:
        assert sent.answer.kind == CLOSE_CONNECTION
    else:
        payload = sent.answer.payload
        answer = codec.decode_response(ApiKey.METADATA, version, payload, 4, len(payload))
        assert (answer.error_code, answer.topics) == (ErrorCode.INVALID_REQUEST, ())
        assert sent.answer.error_code == ErrorCode.INVALID_REQUEST


# ---- the table of APIs -----------------------------------------------------------------------------------------------


#: APIs of Kafka 4.4 (V10), which kio's schemas are older than.
NEWER = {93: "streams_group_topology_description_update", 94: "unregister_controller"}
#: kio's name of each API that clients can request.
KNOWN = {key: api_key_map[key] for key in api_key_map} | NEWER


def test_every_api_is_served_or_has_a_reason_why_not() -> None:
    """users.md row 3: clients fail if a server serves less than it lists, or lists nothing."""
    served = {int(api.key) for api in API_TABLE}
    assert not served & set(not_served()), "served, and listed as not served"
    assert served | set(not_served()) == set(KNOWN), "neither served nor listed with a reason"


def test_row_3_first_requests_of_clients_are_served() -> None:
    """Row 3: producers need InitProducerId (redpanda#292); Sarama, Terraform and kafka.js their versions."""
    ranges = {int(api.key): (api.advertised_min, api.max_version) for api in API_TABLE}
    for key, version in ((0, 12), (1, 17), (2, 8), (3, 12), (10, 4), (18, 4), (19, 7), (22, 4), (32, 4), (60, 1)):
        assert ranges[key][0] <= version <= ranges[key][1]


def test_row_3_every_advertised_version_has_a_response(stepped: SteppedBroker) -> None:
    """Row 3: Redpanda, KoP and others closed the connection over versions that they advertised."""
    advertised_keys = {key for key, _, _ in advertised(has_telemetry=False)}
    for api in (each for each in API_TABLE if int(each.key) in advertised_keys):
        for version in range(api.min_version, api.max_version + 1):
            fields = {"acks": 1} if api.key is ApiKey.PRODUCE else {}
            frame = codec.encode_request(api.key, version, 0, "any", fields)
            sent = stepped.client().send_frame(api.key, version, frame[4:])
            stepped.settle()
            assert sent.answer.kind == SEND, (api.key, version)


def test_names_are_kafkas() -> None:
    for api in API_TABLE:
        assert api.key.name.lower() == KNOWN[int(api.key)]


def test_versions_that_are_left_out_are_explained() -> None:
    for api in API_TABLE:
        kinds = schema_name_map[KNOWN[int(api.key)]]
        known = {version for version, found in kinds.items() if EntityType.request in found}
        left_out = known - set(range(api.min_version, api.max_version + 1))
        assert not left_out or api.note, f"{api.key.name} leaves out {left_out} and says nothing of it"


def test_the_page_lists_all_of_them() -> None:
    lines = describe_markdown().splitlines()
    for api in API_TABLE:
        assert f"| {int(api.key)} | {api.key.name} | {api.min_version}-{api.max_version} | {api.note} |" in lines
    for key in not_served():
        assert any(f"{KNOWN[key].upper()} ({key})" in line for line in lines)
