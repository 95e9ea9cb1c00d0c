"""A share consumer of raw requests: every field is the test's, and no response is interpreted."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from tests.support.deadline import wait_until
from tests.support.described_requests import ask
from tests.support.wire_client import WireClient

#: Ranges as (first, last, delivery count).
Acquired = list[tuple[int, int, int]]


class Got(NamedTuple):
    """A partition of a ShareFetch response."""

    error: int
    acknowledged: int
    acquired: Acquired
    records: bytes


def topic_id_of(port: int, topic: str) -> bytes:
    """Return the id of a topic."""
    with WireClient(port) as client:
        [found] = ask(client, ApiKey.METADATA, 12, {"topics": [{"name": topic}]}).topics
    assert found.error_code == 0, found.error_code
    return bytes(found.topic_id)


def got_in(response: Any) -> dict[int, Got]:
    """Return the partitions of a ShareFetch response; raise on an error."""
    assert response.error_code == 0, response.error_code
    return {
        part.partition_index: Got(
            part.error_code,
            part.acknowledge_error_code,
            [(each.first_offset, each.last_offset, each.delivery_count) for each in part.acquired_records],
            bytes(part.records),
        )
        for topic in response.responses
        for part in topic.partitions
    }


class ShareConsumer:
    """A member of a share group on a connection of its own."""

    def __init__(
        self,
        port: int,
        group: str,
        topic_id: bytes,
        partitions: Sequence[int],
        member: str = "",
        client_id: str = "share",
        source_host: str = "127.0.0.1",
    ) -> None:
        self.client, self.client_id = WireClient(port, source_host=source_host), client_id
        self.group, self.member = group, member or str(uuid.uuid4())
        self.topic_id, self.partitions = topic_id, partitions
        self.epoch = 0

    def close(self) -> None:
        """Close the connection, and not the session."""
        self.client.close()

    def fetch(self, acknowledge: Iterable[tuple[int, int, int, Sequence[int]]] = (), **fields: Any) -> dict[int, Got]:
        """Fetch in the next epoch, with acknowledgements (partition, first, last, types); raise on an error."""
        return got_in(self.fetch_raw(acknowledge, **fields))

    def fetch_raw(self, acknowledge: Iterable[tuple[int, int, int, Sequence[int]]] = (), **fields: Any) -> Any:
        """Return the whole response; the epoch rises unless it has an error."""
        body = {
            "group_id": self.group,
            "member_id": self.member,
            "share_session_epoch": self.epoch,
            "max_wait_ms": 500,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "topics": self._topics(acknowledge),
            **fields,
        }
        response = self.call(ApiKey.SHARE_FETCH, body)
        if not response.error_code:
            self.epoch = 0 if body["share_session_epoch"] == -1 else self.epoch + 1
        return response

    def acknowledge(self, acknowledge: Iterable[tuple[int, int, int, Sequence[int]]], **fields: Any) -> dict[int, int]:
        """Acknowledge by ShareAcknowledge; return the error code of each partition."""
        response = self.acknowledge_raw(acknowledge, **fields)
        assert response.error_code == 0, response.error_code
        return {part.partition_index: part.error_code for topic in response.responses for part in topic.partitions}

    def acknowledge_raw(self, acknowledge: Iterable[tuple[int, int, int, Sequence[int]]], **fields: Any) -> Any:
        """Return the whole response; the epoch rises unless it has an error."""
        body = {
            "group_id": self.group,
            "member_id": self.member,
            "share_session_epoch": self.epoch,
            "topics": self._topics(acknowledge, all_partitions=False),
            **fields,
        }
        response = self.call(ApiKey.SHARE_ACKNOWLEDGE, body)
        self.epoch += not response.error_code
        return response

    def join(self, topic: str) -> ShareConsumer:
        """Join the group and return when a partition is assigned: then all have state to fetch with."""
        epoch = 0

        def has_some() -> bool:
            nonlocal epoch
            body = {
                "group_id": self.group,
                "member_id": self.member,
                "member_epoch": epoch,
                "subscribed_topic_names": [topic],
            }
            response = self.call(ApiKey.SHARE_GROUP_HEARTBEAT, body, 1)
            if response.error_code or response.assignment is None:
                return False
            epoch = response.member_epoch
            return bool(response.assignment.topic_partitions)

        wait_until(has_some, "an assignment")
        return self

    def call(self, key: ApiKey, body: dict[str, Any], version: int = 2) -> Any:
        """Send one request and return the response."""
        self.client.send(codec.encode_request(key, version, 7, self.client_id, body))
        frame = self.client.receive_frame()
        return codec.decode_response(key, version, frame, 0, len(frame))

    def _topics(
        self, acknowledge: Iterable[tuple[int, int, int, Sequence[int]]], *, all_partitions: bool = True
    ) -> list[dict[str, Any]]:
        batches: dict[int, list[dict[str, Any]]] = {}
        for partition, first, last, types in acknowledge:
            batches.setdefault(partition, []).append(
                {"first_offset": first, "last_offset": last, "acknowledge_types": list(types)}
            )
        if all_partitions and self.epoch == 0:
            for partition in self.partitions:
                batches.setdefault(partition, [])
        partitions = [
            {"partition_index": partition, "acknowledgement_batches": each} for partition, each in batches.items()
        ]
        return [{"topic_id": self.topic_id, "partitions": partitions}] if partitions else []
