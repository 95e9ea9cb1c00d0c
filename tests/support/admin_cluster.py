"""A controller, handlers' metadata caches and a partition table in one process, for tests of the admin APIs.

Everything is real but the processes, the logs and the rings: requests and responses pass through the codecs, the
metadata file is on disk, and `settle` does what partition owners do after a metadata change.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rotunda.broker.apis.context import Access, BrokerContext
from rotunda.broker.apis.table import APIS, ApiFunction
from rotunda.broker.config.broker_config import BrokerConfig, load
from rotunda.broker.ipc.listener_table import ListenerEntry
from rotunda.broker.ipc.request import Request
from rotunda.broker.log.owner_tasks import DELETE_RECORDS
from rotunda.broker.metadata.controller import Controller
from rotunda.broker.metadata.metadata_cache import Changes, MetadataCache, PartitionInfo, TopicInfo
from rotunda.broker.metadata.store.metadata_file import metadata_path
from rotunda.broker.metadata.topics.topic_validation import NewTopic
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.headers import parse_header
from rotunda.broker.quotas.quota_manager import QuotaManager
from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.scheduling.peer_tasks import TaskDone
from rotunda.broker.security.session import ANONYMOUS
from rotunda.shm.tables.partitions import STATE_CLOSED, STATE_OPEN, PartitionTable
from rotunda.shm.tables.quota_tables import QuotaTables
from tests.support.fakes import FakeClock
from tests.support.results import present
from tests.support.slices import finished

HANDLERS = 3
CLUSTER_ID = "rotunda-test-cluster-id"
LISTENER = ListenerEntry("PLAINTEXT", "PLAINTEXT", "broker.test", 19092)


class AdminCluster:
    """The metadata side of one broker."""

    def __init__(self, data_dir: Path, rows: int = 64, settings: Mapping[str, str] | None = None) -> None:
        self.config: BrokerConfig = load(None, {"log.dirs": str(data_dir), **(settings or {})}, {})
        self.path = metadata_path(data_dir)
        self.clock = FakeClock()
        memory = memoryview(bytearray(PartitionTable.bytes_needed(rows, HANDLERS + 1)))
        self.table = PartitionTable(memory, 0, rows, HANDLERS + 1)
        self.metadata = self.new_cache()
        self.controller = Controller.open(self.metadata, self.table, self.config, lambda: self.metadata.version)
        self.handlers = [self.new_cache() for _ in range(HANDLERS)]
        self.announced: list[int] = []
        windows = self.config.quota_window_num
        quota_memory = memoryview(bytearray(QuotaTables.bytes_needed(windows, 1)))
        self.quotas = QuotaManager(QuotaTables(quota_memory, windows, 1), 0, self.config, ("PLAINTEXT",))
        self.asked_to_create: list[list[str]] = []
        #: By (row, offset): the callback for an owner's response to a DeleteRecords request.
        self.asked_owners: dict[tuple[int, int], TaskDone] = {}
        #: By row: responses that are available immediately.
        self.owner_answers: dict[int, tuple[int, bytes]] = {}
        self.readers: dict[tuple[str, int], Any] = {}
        self.apis: Sequence[tuple[int, int, int]] = ()
        self.listeners = [LISTENER]
        self._sequences = itertools.count()

    def new_cache(self) -> MetadataCache:
        return MetadataCache(self.path, HANDLERS, self.config)

    def restart_controller(self) -> None:
        """Put a new controller in the place of the present one; the partition table stays."""
        self.controller.close()
        self.metadata = self.new_cache()
        self.controller = Controller.open(self.metadata, self.table, self.config, lambda: self.metadata.version)

    def close(self) -> None:
        self.controller.close()
        for cache in (self.metadata, *self.handlers):
            cache.close()

    def settle(self) -> list[Changes]:
        """Apply the metadata changes to every handler, and open and close its partitions."""
        return [self.settle_handler(index) for index in range(HANDLERS)]

    def settle_handler(self, index: int) -> Changes:
        changes = self.handlers[index].refresh()
        for _, partition in changes.deleted:
            if partition.owner == index:
                self.table.reset(partition.row)
                self.table.set_state(partition.row, STATE_CLOSED)
        for _, partition in changes.created:
            if partition.owner == index and self.table.state(partition.row) != STATE_OPEN:
                self.publish(partition.row, end=0)
        return changes

    def publish(self, row: int, end: int, *, start: int = 0, stable: int | None = None, log_bytes: int = 0) -> None:
        """Publish a partition's ends, as its owner does after opening it or appending to it."""
        self.table.row_writer(row).publish(end, 0, log_bytes, start, end if stable is None else stable, log_bytes)
        self.table.set_state(row, STATE_OPEN)

    def create(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> TopicInfo:
        """Create a topic and wait until its owners have opened it."""
        [outcome] = self.controller.create_topics([NewTopic(name, partitions, configs=dict(configs or {}))])
        assert outcome.error_code == 0, outcome
        self.settle()
        topic = self.metadata.topic(name)
        assert topic is not None
        return topic

    def delete(self, name: str) -> None:
        topic = self.metadata.topic(name)
        assert topic is not None
        self.controller.delete_topics([topic])

    def partition(self, name: str, index: int = 0) -> PartitionInfo:
        partition = self.metadata.partition(name, index)
        assert partition is not None
        return partition

    def asked(
        self, api_key: int, api_version: int, *, cache: MetadataCache | None = None
    ) -> tuple[Request, BrokerContext]:
        """Return a request and its response: from a handler if its cache is passed, otherwise from the controller."""
        active = SimpleNamespace(
            controller=self.controller, announce=lambda: self.announced.append(self.controller.version)
        )
        broker: Any = SimpleNamespace(
            metadata=cache or self.metadata,
            access=Access(cache or self.metadata),
            address_for=lambda request: self.listeners[request.listener].address_for(request.session),
            listeners=self.listeners,
            partitions=SimpleNamespace(
                table=self.table, reader=lambda _row, topic, partition: self.readers[topic, partition]
            ),
            clock=self.clock,
            cluster_id=CLUSTER_ID,
            controller=active if cache is None else None,
            apis=self.apis,
            create_topics=lambda names: self.asked_to_create.append(list(names)),
            tasks=SimpleNamespace(ask=self._ask_owner),
            quotas=self.quotas,
            telemetry=None,
        )
        request = Request()
        request.api_key, request.api_version, request.correlation_id = api_key, api_version, 7
        request.client_id, request.session = "test", ANONYMOUS
        request.connection_id, request.sequence, request.received_ns = 1, next(self._sequences), 0
        request.listener, request.in_slices = 0, False
        return request, broker

    def call(self, api_key: int, version: int, fields: Mapping[str, Any], function: ApiFunction | None = None) -> Any:
        """Send a request through the codec, the API's function, and the codec again; return the decoded response."""
        run = function or present(APIS[api_key].function)
        answer = finished(run(*self.asked(api_key, version), self.request(api_key, version, fields)))
        assert not isinstance(answer, Deferred)
        return self.sent(api_key, version, answer)

    def request(self, api_key: int, version: int, fields: Mapping[str, Any]) -> Any:
        wire = codec.encode_request(api_key, version, 7, "", fields)
        return codec.decode(api_key, version, wire, parse_header(wire, 4, len(wire)).body_offset, len(wire))

    def sent(self, api_key: int, version: int, answer: Mapping[str, Any]) -> Any:
        """Return the response as a client decodes it."""
        wire = codec.encode_response(api_key, version, 7, answer)
        return codec.decode_response(api_key, version, wire, 4, len(wire))

    def _ask_owner(self, _owner: int, task: str, payload: bytes, done: TaskDone) -> None:
        assert task == "delete_records"
        row, before = DELETE_RECORDS.unpack(payload)
        self.asked_owners[row, before] = done
        if row in self.owner_answers:
            done(*self.owner_answers[row])
