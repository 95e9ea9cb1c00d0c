"""A broker made of dictionaries with a real socket: its contents are set by the test, its responses use kio."""

import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey, request_header_version
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.records.record_batch import read_header

SERVED = {
    ApiKey.FETCH: (4, 17),
    ApiKey.LIST_OFFSETS: (1, 10),
    ApiKey.METADATA: (0, 13),
    ApiKey.OFFSET_COMMIT: (2, 9),
    ApiKey.OFFSET_FETCH: (1, 9),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.DESCRIBE_GROUPS: (0, 6),
    ApiKey.LIST_GROUPS: (0, 5),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.DELETE_GROUPS: (0, 2),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1),
}


@dataclass
class Log:
    """A partition. `aborted` holds (producer id, first offset); `stable` is the end unless given."""

    batches: list[bytes] = field(default_factory=list)
    start: int = 0
    end: int = 0
    stable: int | None = None
    aborted: list[tuple[int, int]] = field(default_factory=list)
    time_offset: int = -1

    @property
    def last_stable_offset(self) -> int:
        return self.end if self.stable is None else self.stable


@dataclass
class FakeBroker:
    """The broker's contents. `answers` replaces the response of an API; `asked` collects the requests."""

    logs: dict[TopicPartition, Log] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, tuple[int, int, str | None]]] = field(default_factory=dict)
    classic: dict[str, dict[str, Any]] = field(default_factory=dict)
    consumer: dict[str, dict[str, Any]] = field(default_factory=dict)
    responses: dict[ApiKey, list[dict[str, Any]]] = field(default_factory=dict)
    served: dict[ApiKey, tuple[int, int]] = field(default_factory=lambda: dict(SERVED))
    asked: list[tuple[ApiKey, Any]] = field(default_factory=list)
    fetch_bytes: int = 1 << 20

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Yield the address; every connection to it is served until the end."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=self._accept, args=(listener,), daemon=True)
            thread.start()
            try:
                yield f"127.0.0.1:{listener.getsockname()[1]}"
            finally:
                listener.shutdown(socket.SHUT_RDWR)
                thread.join(10)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as stream:
                while head := stream.read(4):
                    connection.sendall(self.response(stream.read(struct.unpack(">i", head)[0])))

    def response(self, frame: bytes) -> bytes:
        """Return the response to a request, both as on the wire."""
        key, version, correlation_id, client_length = struct.unpack_from(">hhih", frame)
        api_key = ApiKey(key)
        body = 10 + client_length + (request_header_version(api_key, version) > 1)
        request = codec.decode(api_key, version, memoryview(frame), body, len(frame))
        self.asked.append((api_key, request))
        prepared = self.responses.get(api_key)
        values = prepared.pop(0) if prepared else getattr(self, f"_{api_key.name.lower()}")(request)
        return codec.encode_response(api_key, version, correlation_id, values)

    def _api_versions(self, _: Any) -> dict[str, Any]:
        keys = [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in self.served.items()]
        return {"error_code": 0, "api_keys": keys}

    def _metadata(self, request: Any) -> dict[str, Any]:
        topics = []
        for name in [str(topic.name) for topic in request.topics]:
            partitions = [each.partition for each in self.logs if each.topic == name]
            code = 0 if partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topics.append(
                {"name": name, "error_code": code, "partitions": [{"partition_index": each} for each in partitions]}
            )
        return {"topics": topics}

    def _list_offsets(self, request: Any) -> dict[str, Any]:
        def listed(partition: TopicPartition, time_ms: int) -> dict[str, Any]:
            log = self.logs.get(partition)
            if log is None:
                return {
                    "partition_index": partition.partition,
                    "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                }
            last = log.last_stable_offset if request.isolation_level else log.end
            offset = {-1: last, -2: log.start}.get(time_ms, log.time_offset)
            return {"partition_index": partition.partition, "offset": offset}

        return {
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        listed(TopicPartition(topic.name, each.partition_index), each.timestamp)
                        for each in topic.partitions
                    ],
                }
                for topic in request.topics
            ]
        }

    def _fetch(self, request: Any) -> dict[str, Any]:
        first = True
        responses = []
        for topic in request.topics:
            partitions = []
            for each in topic.partitions:
                log = self.logs[TopicPartition(topic.topic, each.partition)]
                partitions.append(self._fetched(log, each, bool(request.isolation_level), whole=first))
                first = False
            responses.append({"topic": topic.topic, "partitions": partitions})
        return {"responses": responses}

    def _fetched(self, log: Log, wanted: Any, read_committed: bool, *, whole: bool) -> dict[str, Any]:
        """Return records from the offset's batch on: one whole batch at least, or as much as fits, cut anywhere."""
        end = log.last_stable_offset if read_committed else log.end
        if not log.start <= wanted.fetch_offset <= log.end:
            return {
                "partition_index": wanted.partition,
                "error_code": ErrorCode.OFFSET_OUT_OF_RANGE,
            }
        found = b""
        for batch in log.batches:
            header = read_header(batch)
            assert header is not None
            if header.last_offset < wanted.fetch_offset or header.base_offset >= end:
                continue
            if not (whole and not found) and len(found) + len(batch) > self.fetch_bytes:
                found += batch[: self.fetch_bytes - len(found)]
                break
            found += batch
        return {
            "partition_index": wanted.partition,
            "high_watermark": log.end,
            "last_stable_offset": log.last_stable_offset,
            "aborted_transactions": [{"producer_id": pid, "first_offset": first} for pid, first in log.aborted]
            if read_committed
            else None,
            "records": found,
        }

    def _find_coordinator(self, request: Any) -> dict[str, Any]:
        keys = request.coordinator_keys
        return {"coordinators": [{"key": key, "node_id": 1, "host": "here", "port": 9092} for key in keys]}

    def _list_groups(self, request: Any) -> dict[str, Any]:
        kinds = {"classic": self.classic, "consumer": self.consumer}
        groups = [
            {
                "group_id": name,
                "protocol_type": group.get("protocol_type", "consumer"),
                "group_state": group["group_state"],
                "group_type": kind,
            }
            for kind, listed in kinds.items()
            for name, group in listed.items()
            if kind in (getattr(request, "types_filter", ()) or (kind,))
            if group["group_state"] in (getattr(request, "states_filter", ()) or (group["group_state"],))
        ]
        return {"groups": groups}

    def _consumer_group_describe(self, request: Any) -> dict[str, Any]:
        return {"groups": [_described(name, self.consumer.get(name)) for name in request.group_ids]}

    def _describe_groups(self, request: Any) -> dict[str, Any]:
        return {"groups": [_described(name, self.classic.get(name)) for name in request.groups]}

    def _delete_groups(self, request: Any) -> dict[str, Any]:
        results = []
        for name in request.groups_names:
            group = {**self.classic, **self.consumer}.get(name)
            code = ErrorCode.GROUP_ID_NOT_FOUND if group is None else 0
            if group is not None and group["members"]:
                code = ErrorCode.NON_EMPTY_GROUP
            results.append({"group_id": name, "error_code": code})
        return {"results": results}

    def _offset_fetch(self, request: Any) -> dict[str, Any]:
        name = request.groups[0].group_id
        topics = [
            {
                "name": partition.topic,
                "partitions": [
                    {
                        "partition_index": partition.partition,
                        "committed_offset": offset,
                        "committed_leader_epoch": epoch,
                        "metadata": metadata,
                    }
                ],
            }
            for partition, (offset, epoch, metadata) in self.offsets.get(name, {}).items()
        ]
        return {"groups": [{"group_id": name, "topics": topics}]}

    def _offset_commit(self, request: Any) -> dict[str, Any]:
        offsets = self.offsets.setdefault(request.group_id, {})
        for topic in request.topics:
            for each in topic.partitions:
                partition = TopicPartition(str(topic.name), int(each.partition_index))
                offsets[partition] = int(each.committed_offset), -1, each.committed_metadata
        return {
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [{"partition_index": each.partition_index} for each in topic.partitions],
                }
                for topic in request.topics
            ]
        }


def _described(name: str, group: Mapping[str, Any] | None) -> dict[str, Any]:
    if group is None:
        return {"group_id": name, "error_code": ErrorCode.GROUP_ID_NOT_FOUND}
    return {"group_id": name, **group}
