"""The registry of APIs and versions: every API in Kafka's schemas is served or has a reason."""

from __future__ import annotations

from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from rotunda.broker.apis.not_served import not_served
from rotunda.broker.apis.table import API_TABLE, advertised, describe_markdown
from rotunda.broker.ipc.request_channel import SEND
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from tests.support.stepped_broker import SteppedBroker

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
