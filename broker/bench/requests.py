"""Requests that the bench sends in place of a profile's: a table by API.

The log has only a request's first partition and the number of partitions, so all of them are assumed to be of that
partition's topic. APIs outside the table are skipped: they need data that the log does not have (group members,
transactions, settings).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rotunda.broker.bench.batches import BatchMaker
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.records.record_batch import CODECS

if TYPE_CHECKING:
    from rotunda.broker.bench.profile import Event
    from rotunda.broker.clock import Clock

_TIMEOUT_MS: Final = 30_000
_FETCH_BYTES: Final = 50 << 20
_PARTITION_BYTES: Final = 1 << 20
_LATEST: Final = -1

Fields = dict[str, Any]
Positions = dict[tuple[str, int], int]


class BenchTopic(NamedTuple):
    """A topic of the bench: its name there, id, and number of partitions."""

    name: str
    topic_id: bytes
    partitions: int


class RequestMaker:
    """Converts a profile's events to request fields. `speed` shortens the wait of a Fetch."""

    def __init__(self, topics: Mapping[str, BenchTopic], prefix: str, speed: float, clock: Clock) -> None:
        self._topics = topics
        self._prefix = prefix
        self._speed = speed
        self._clock = clock
        self._batches = BatchMaker()

    def fields(self, event: Event, positions: Positions) -> Fields | None:
        """Return a request's fields, as in `broker.protocol.codec`; None if it is skipped.

        `positions` are the connection's read positions by partition.
        """
        kind = KINDS.get(event.requestApiKey if event.requestApiKey is not None else -1)
        return None if kind is None else kind.fields(self, event, positions)

    def produce(self, event: Event, _: Positions) -> Fields | None:
        """Return a Produce with batches of the recorded sizes; None if it had none."""
        parts = list(self._partitions(event))
        if not parts or not event.records or not event.recordBytes:
            return None
        codec = event.codec if event.codec in CODECS else CODECS[0]
        now_ms = self._clock.wall_ms()
        data = []
        for place, part in enumerate(parts):
            records, size = (_share(whole, place, len(parts)) for whole in (event.records, event.recordBytes))
            batch = self._batches.make(records, size, str(codec), now_ms)
            data.append({"index": part, "records": batch})
        topic = self._topics[str(event.topic)]
        return {
            "transactional_id": None, "acks": -1 if event.acks is None else event.acks, "timeout_ms": _TIMEOUT_MS,
            "topic_data": [{"name": topic.name, "topic_id": topic.topic_id, "partition_data": data}],
        }  # fmt: skip

    def fetch(self, event: Event, positions: Positions) -> Fields:
        """Return a Fetch from the connection's read positions."""
        partitions = [
            {"partition": part, "current_leader_epoch": -1, "log_start_offset": -1,
             "fetch_offset": positions.get((str(event.topic), part), 0), "partition_max_bytes": _PARTITION_BYTES}
            for part in self._partitions(event)
        ]  # fmt: skip
        return {
            "replica_id": -1, "max_wait_ms": round((event.maxWaitMs or 0) / self._speed),
            "min_bytes": event.minBytes or 0, "max_bytes": _FETCH_BYTES, "isolation_level": event.isolationLevel or 0,
            "session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": "",
            "topics": self._of_topic(event, "topic", partitions),
        }  # fmt: skip

    def list_offsets(self, event: Event, _: Positions) -> Fields:
        """Return a request for the end offsets of partitions."""
        partitions = [
            {"partition_index": part, "current_leader_epoch": -1, "timestamp": _LATEST}
            for part in self._partitions(event)
        ]
        topics = [] if event.topic is None else [{"name": self._topics[event.topic].name, "partitions": partitions}]
        return {"replica_id": -1, "isolation_level": event.isolationLevel or 0, "topics": topics}

    def metadata(self, _event: Event, _: Positions) -> Fields:
        """Return a request for all topics of the bench: the log does not record the requested ones."""
        topics = [{"name": each.name} for each in self._topics.values()]
        return {"topics": topics, "allow_auto_topic_creation": False}

    def offset_commit(self, event: Event, positions: Positions) -> Fields:
        """Return a commit of a group without members, named after the client."""
        partitions = [
            {"partition_index": part, "committed_offset": positions.get((str(event.topic), part), 0),
             "committed_leader_epoch": -1, "committed_metadata": ""}
            for part in self._partitions(event)
        ]  # fmt: skip
        return {
            "group_id": self._group(event), "generation_id_or_member_epoch": -1, "member_id": "",
            "group_instance_id": None, "topics": self._of_topic(event, "name", partitions),
        }  # fmt: skip

    def offset_fetch(self, event: Event, _: Positions) -> Fields:
        """Return a request for that group's committed offsets; for all topics if the log names none."""
        topics = self._of_topic(event, "name", list(self._partitions(event)), "partition_indexes") or [
            {"name": each.name, "partition_indexes": list(range(each.partitions))} for each in self._topics.values()
        ]
        group = {"group_id": self._group(event), "topics": topics}
        return {**group, "groups": [group], "require_stable": False}

    def find_coordinator(self, event: Event, _: Positions) -> Fields:
        """Return a request for the coordinator of that group."""
        group = self._group(event)
        return {"key": group, "key_type": 0, "coordinator_keys": [group]}

    def api_versions(self, event: Event, _: Positions) -> Fields:
        """Return an ApiVersions request with the recorded library's name."""
        return {
            "client_software_name": event.softwareName or "rotunda-bench",
            "client_software_version": event.softwareVersion or "0",
        }

    def init_producer_id(self, _event: Event, _: Positions) -> Fields:
        """Return a request for a producer id, without transactions."""
        return {
            "transactional_id": None, "transaction_timeout_ms": _TIMEOUT_MS, "producer_id": -1, "producer_epoch": -1
        }  # fmt: skip

    def _group(self, event: Event) -> str:
        return f"{self._prefix}{event.clientId or ''}"

    def _partitions(self, event: Event) -> Iterator[int]:
        """Yield the recorded number of partitions, starting at the first."""
        if event.topic is not None:
            count = self._topics[event.topic].partitions
            for place in range(min(max(event.partitionCount or 0, 1), count)):
                yield ((event.partition or 0) + place) % count

    def _of_topic(self, event: Event, name: str, parts: list[Any], of: str = "partitions") -> list[Fields]:
        if event.topic is None:
            return []
        topic = self._topics[event.topic]
        return [{name: topic.name, "topic_id": topic.topic_id, of: parts}]


class Kind(NamedTuple):
    """An API that the bench sends: its newest version and its request builder."""

    newest: int
    fields: Callable[[RequestMaker, Event, Positions], Fields | None]


KINDS: Final[Mapping[int, Kind]] = {
    ApiKey.PRODUCE: Kind(13, RequestMaker.produce),
    ApiKey.FETCH: Kind(17, RequestMaker.fetch),
    ApiKey.LIST_OFFSETS: Kind(8, RequestMaker.list_offsets),
    ApiKey.METADATA: Kind(12, RequestMaker.metadata),
    ApiKey.OFFSET_COMMIT: Kind(9, RequestMaker.offset_commit),
    ApiKey.OFFSET_FETCH: Kind(9, RequestMaker.offset_fetch),
    ApiKey.FIND_COORDINATOR: Kind(5, RequestMaker.find_coordinator),
    ApiKey.API_VERSIONS: Kind(4, RequestMaker.api_versions),
    ApiKey.INIT_PRODUCER_ID: Kind(5, RequestMaker.init_producer_id),
}


def _share(whole: int, place: int, parts: int) -> int:
    return whole * (place + 1) // parts - whole * place // parts
