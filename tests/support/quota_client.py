"""A raw connection of a client with an id, which reads the throttle times in its responses."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from typing import Any

from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from tests.support.broker_process import BrokerProcess
from tests.support.described_requests import ask
from tests.support.record_batches import record_batch
from tests.support.wire_client import WireClient, sized
from tests.support.wire_messages import produce_body

CORRELATION_ID = 5
BATCH = record_batch([b"x" * 49_000])


class QuotaClient:
    """Connection of a client that sends an id. For `produce` surrogates are bytes that are not UTF-8."""

    def __init__(self, broker: BrokerProcess, client_id: str, port: int | None = None) -> None:
        """``port``: of another listener than the first."""
        self.wire = WireClient(port or broker.port)
        self.client_id = client_id
        #: When the last request was sent: a throttle time cannot have begun earlier.
        self.sent_ns = 0

    def send(self, key: int, version: int, fields: Mapping[str, Any]) -> None:
        self.sent_ns = time.monotonic_ns()
        self.wire.send(codec.encode_request(key, version, CORRELATION_ID, self.client_id, fields))

    def receive(self, key: int, version: int) -> Any:
        answer = sized(self.wire.receive_frame())
        return codec.decode_response(key, version, answer, 4, len(answer))

    def ask(self, key: int, version: int, fields: Mapping[str, Any]) -> Any:
        self.send(key, version, fields)
        return self.receive(key, version)

    def produce(self, topic: str, partition: int = 0, version: int = 7, acks: int = 1) -> int:
        """Send a batch of 49 KB; return the throttle time in ms of the response."""
        body = produce_body([(topic, partition, BATCH)], acks)
        name = self.client_id.encode(errors="surrogateescape")
        header = struct.pack(">hhih", ApiKey.PRODUCE, version, CORRELATION_ID, len(name)) + name
        self.sent_ns = time.monotonic_ns()
        self.wire.send(sized(header + body))
        if not acks:
            return 0
        answer = self.receive(ApiKey.PRODUCE, version)
        assert [part.error_code for each in answer.responses for part in each.partition_responses] == [0]
        return answer.throttle_time_ms

    def api_versions(self) -> int:
        """Request the versions; return the time in ms from the request before to the response."""
        begun_ns = self.sent_ns
        self.ask(ApiKey.API_VERSIONS, 0, {})
        return (time.monotonic_ns() - begun_ns) // 1_000_000


def set_quota(wire: WireClient, entity: Mapping[str, str | None], **values: float | None) -> None:
    """Set quotas of an entity; with None remove them."""
    entry = {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in values.items()],
    }
    [outcome] = ask(wire, ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": [entry], "validate_only": False}).entries
    assert outcome.error_code == 0, outcome.error_message
