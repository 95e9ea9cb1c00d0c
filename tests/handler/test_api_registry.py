"""The registry of APIs and versions: every API in Kafka's schemas is served or has a reason."""

from __future__ import annotations

from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from rotunda.broker.apis.not_served import not_served
from rotunda.broker.apis.table import API_TABLE, describe_markdown

#: APIs of Kafka 4.4 (V10), which kio's schemas are older than.
NEWER = {93: "streams_group_topology_description_update", 94: "unregister_controller"}
#: kio's name of each API that clients can request.
KNOWN = {key: api_key_map[key] for key in api_key_map} | NEWER


def test_every_api_is_served_or_has_a_reason_why_not() -> None:
    """users.md row 3: clients fail if a server serves less than it lists, or lists nothing."""
    served = {int(api.key) for api in API_TABLE}
    assert not served & set(not_served()), "served, and listed as not served"
    assert served | set(not_served()) == set(KNOWN), "neither served nor listed with a reason"


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
