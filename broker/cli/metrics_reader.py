"""Attaches to a running broker's shared memory from another process, such as the command line's."""

from __future__ import annotations

import select
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rotunda.broker.clock import SystemClock
from rotunda.broker.config.broker_config import load
from rotunda.broker.ipc.listener_table import ListenerNames, ListenerTable
from rotunda.broker.metadata.metadata_cache import MetadataCache
from rotunda.broker.metadata.store.metadata_file import metadata_path
from rotunda.broker.metrics.broker_reading import BrokerReader, Names, Segments, Topic
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.release import installed_version
from rotunda.shm.control import ControlSegment
from rotunda.shm.metrics.process_metrics import MetricsSegment
from rotunda.shm.rings.recorder_rings import RecorderRings
from rotunda.shm.segment import attach
from rotunda.shm.tables.quota_tables import QuotaTables
from rotunda.shm.tables.snapshot_buffer import SnapshotSegment

if TYPE_CHECKING:
    from rotunda.broker.metrics.broker_reading import BrokerReading
    from rotunda.broker.runtime.run_dir import RunRecord
    from rotunda.shm.control import BrokerWords

#: Time for handlers to publish their groups; they check twice a second whether a reader needs them.
WAIT_NS: Final = 2_000_000_000
_LOOK_AGAIN_S: Final = 0.05


def attached(record: RunRecord) -> BrokerReader:
    """Return a reader for a process of the same user. Raises SegmentError when the broker has stopped."""
    processors, handlers = record.most_processors, record.most_handlers

    def view_of(purpose: str, *, writable: bool = False) -> memoryview:
        return attach(f"/rotunda-{record.instance}-{purpose}", writable=writable).view

    control = ControlSegment(view_of("control"), processors, handlers, record.max_partitions)
    made = partial(getattr, control.broker_words, "processors_made")
    # Writable: a reader publishes there that it needs data.
    snapshots = SnapshotSegment(view_of("snapshots", writable=True), processors, handlers)
    segments = Segments(
        control=control,
        metrics=MetricsSegment(view_of("metrics"), processors, handlers),
        rings=view_of("rings"),
        recorder=RecorderRings(view_of("recorder"), processors, handlers + 1, record.processors, made),
        snapshots=snapshots,
        quotas=QuotaTables.attached(view_of("quotas")),
    )
    found = _topics(Path(record.data_dir), control.broker_words)
    clocks = (SystemClock.monotonic_ns, SystemClock.wall_ms)
    return BrokerReader(segments, installed_version(), _names(snapshots), found, clocks)


def reading_with_groups(reader: BrokerReader) -> BrokerReading:
    """Return a reading after all handlers have published their groups, or without some of them after a wait."""
    deadline_ns = SystemClock.monotonic_ns() + WAIT_NS
    reader.wants.command_looks(deadline_ns)
    reading = reader.read()
    while not reading.groups_known and SystemClock.monotonic_ns() < deadline_ns:
        select.select((), (), (), _LOOK_AGAIN_S)
        reading = reader.read()
    return reading


def _topics(data_dir: Path, broker_words: BrokerWords) -> Callable[[], list[Topic]]:
    """Return a function that returns the present topics. It has no file open between two calls."""
    metadata = MetadataCache(metadata_path(data_dir), broker_words.handlers, load(None, {}, {}))
    known: list[Topic] = []

    def topics() -> list[Topic]:
        if broker_words.metadata_version > metadata.version:
            metadata.refresh()
            metadata.close()
            known[:] = [
                (topic.name, topic.internal, [(each.index, each.row, each.owner) for each in topic.partitions])
                for topic in metadata.topics()
            ]
        return known

    return topics


def _names(snapshots: SnapshotSegment) -> Names:
    return Names(
        apis={int(key): key.text for key in ApiKey},
        errors={int(code): code.name for code in ErrorCode},
        listeners=ListenerNames(ListenerTable(snapshots.of_listeners())),
    )
