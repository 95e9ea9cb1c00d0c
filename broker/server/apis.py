"""The registry of what this broker serves: api key, versions, codec, function. ApiVersions is derived from it.

Used by handler processes and the controller. A key that is missing here is not advertised and closes the connection
that sends it (``C07``); nothing is advertised that is not served, but for the refused versions of Produce (``C12``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from broker.protocol import kio_adapter
from broker.protocol.api_keys import ApiKey
from broker.protocol.messages import api_versions, init_producer_id, list_offsets, metadata
from broker.server.handlers.alter_configs import handle_alter_configs, handle_incremental_alter_configs
from broker.server.handlers.api_versions import handle_api_versions
from broker.server.handlers.create_partitions import handle_create_partitions
from broker.server.handlers.create_topics import handle_create_topics
from broker.server.handlers.delete_records import handle_delete_records
from broker.server.handlers.delete_topics import handle_delete_topics
from broker.server.handlers.describe_cluster import handle_describe_cluster
from broker.server.handlers.describe_configs import handle_describe_configs
from broker.server.handlers.describe_log_dirs import handle_describe_log_dirs
from broker.server.handlers.describe_topic_partitions import handle_describe_topic_partitions
from broker.server.handlers.find_coordinator import handle_find_coordinator
from broker.server.handlers.init_producer_id import handle_init_producer_id
from broker.server.handlers.list_offsets import handle_list_offsets
from broker.server.handlers.metadata import handle_metadata
from broker.server.handlers.offset_for_leader_epoch import handle_offset_for_leader_epoch
from broker.server.handlers.sasl import handle_sasl_authenticate, handle_sasl_handshake
from broker.server.request_context import RequestContext

#: (context, request) to response or Parked.
ApiFunction = Callable[[RequestContext, Any], Any]


class Api(NamedTuple):
    """One API: the versions served, how its messages are read and written, and the function that answers.

    ``advertised_min`` is lower than ``min_version`` where clients need to see versions that are refused.
    """

    key: ApiKey
    min_version: int
    max_version: int
    decode: Callable[[memoryview, int, int, int], Any] | None
    encode: Callable[[int, int, Any], bytes] | None
    function: ApiFunction | None
    advertised_min: int
    note: str = ""
    loads_codec: bool = False


def _hot(key: ApiKey, versions: tuple[int, int], advertised_min: int, note: str = "") -> Api:
    """Produce and Fetch: the request loop takes them to their own paths."""
    return Api(key, *versions, None, None, None, advertised_min, note)


def _hand(
    key: ApiKey,
    versions: tuple[int, int],
    codec: tuple[Callable[..., Any], Callable[..., bytes]],
    function: ApiFunction,
) -> Api:
    return Api(key, *versions, *codec, function, versions[0])


def _kio(key: ApiKey, versions: tuple[int, int], function: ApiFunction, note: str = "") -> Api:
    def decode(view: memoryview, version: int, offset: int, end: int) -> Any:
        return kio_adapter.decode(key, version, view, offset, end)

    encode = partial(kio_adapter.encode_response, int(key))
    return Api(key, *versions, decode, encode, function, versions[0], note, loads_codec=True)


_REFUSED_PRODUCE = "0-2 are advertised for old librdkafka, and refused by closing the connection, as Kafka does"
_NO_SESSIONS = "fetch sessions are not kept: every answer carries session id 0, and clients fetch in full"
_NO_SASL = "answered with ILLEGAL_SASL_STATE, as by any broker without SASL"
_NO_TRANSACTIONS = "producer ids for idempotence; a transactional id is refused"

API_TABLE: tuple[Api, ...] = (
    _hot(ApiKey.PRODUCE, (3, 13), 0, _REFUSED_PRODUCE),
    _hot(ApiKey.FETCH, (4, 18), 4, _NO_SESSIONS),
    _hand(
        ApiKey.LIST_OFFSETS,
        (1, 11),
        (list_offsets.parse_list_offsets, list_offsets.encode_list_offsets_response),
        handle_list_offsets,
    ),
    _hand(
        ApiKey.METADATA,
        (0, 13),
        (metadata.parse_metadata, metadata.encode_metadata_response),
        handle_metadata,
    ),
    _kio(ApiKey.FIND_COORDINATOR, (0, 6), handle_find_coordinator),
    _kio(ApiKey.SASL_HANDSHAKE, (0, 1), handle_sasl_handshake, _NO_SASL),
    _hand(
        ApiKey.API_VERSIONS,
        (0, 4),
        (api_versions.parse_api_versions, api_versions.encode_api_versions_response),
        handle_api_versions,
    ),
    _kio(ApiKey.CREATE_TOPICS, (2, 7), handle_create_topics),
    _kio(ApiKey.DELETE_TOPICS, (1, 6), handle_delete_topics),
    _kio(ApiKey.DELETE_RECORDS, (0, 2), handle_delete_records),
    _hand(
        ApiKey.INIT_PRODUCER_ID,
        (0, 5),
        (init_producer_id.parse_init_producer_id, init_producer_id.encode_init_producer_id_response),
        handle_init_producer_id,
    )._replace(note=_NO_TRANSACTIONS),
    _kio(ApiKey.OFFSET_FOR_LEADER_EPOCH, (2, 4), handle_offset_for_leader_epoch),
    _kio(ApiKey.DESCRIBE_CONFIGS, (1, 4), handle_describe_configs),
    _kio(ApiKey.ALTER_CONFIGS, (0, 2), handle_alter_configs),
    _kio(ApiKey.DESCRIBE_LOG_DIRS, (1, 5), handle_describe_log_dirs),
    _kio(ApiKey.SASL_AUTHENTICATE, (0, 2), handle_sasl_authenticate, _NO_SASL),
    _kio(ApiKey.CREATE_PARTITIONS, (0, 3), handle_create_partitions),
    _kio(ApiKey.INCREMENTAL_ALTER_CONFIGS, (0, 1), handle_incremental_alter_configs),
    _kio(ApiKey.DESCRIBE_CLUSTER, (0, 2), handle_describe_cluster),
    _kio(ApiKey.DESCRIBE_TOPIC_PARTITIONS, (0, 0), handle_describe_topic_partitions),
)

APIS: dict[int, Api] = {int(api.key): api for api in API_TABLE}
if len(APIS) != len(API_TABLE):
    raise RuntimeError("an api key is registered twice")


def advertised() -> tuple[tuple[int, int, int], ...]:
    """Return (api key, lowest, highest version) of every API, as ApiVersions tells clients."""
    return tuple((int(api.key), api.advertised_min, api.max_version) for api in API_TABLE)


def describe_markdown() -> str:
    """Return the text of docs/api-versions.md."""
    rows = [
        f"| {int(api.key)} | {api.key.name} | {api.min_version}-{api.max_version} | {api.note} |" for api in API_TABLE
    ]
    head = (
        "# APIs and versions\n\n"
        "Printed by `broker/server/apis.py`, from the table that dispatches requests. An API that is not listed is\n"
        "not advertised, and a request for it closes its connection.\n\n"
        "| key | API | versions served | remarks |\n|---|---|---|---|\n"
    )
    return head + "\n".join(rows) + "\n"
