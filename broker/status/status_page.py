"""The web process from boot to exit: waits for the first browser, and only then loads the page's code.

The only module of the broker that knows the page. The page knows nothing of the broker: facts of the broker are passed
to it as plain values and functions. The process reads shared memory, the metadata file and the system's process table.
It can be killed at any time, and the supervisor holds its port meanwhile.
"""

from __future__ import annotations

import logging
import os
import select
import sqlite3
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from rotunda.broker import native
from rotunda.broker.clock import SystemClock
from rotunda.broker.config.settings.status import is_loopback
from rotunda.broker.ipc.listener_table import ListenerNames
from rotunda.broker.release import installed_version
from rotunda.broker.request_log.part_files import DIRECTORY
from rotunda.broker.runtime.child_process import Role
from rotunda.broker.server_log.log_setup import RepeatedWarnings
from rotunda.shm.tables.process_slots import BEAT_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rotunda.broker.ipc.process_context import ProcessContext
    from rotunda.broker.metadata.configs.live_settings import LiveSettings
    from rotunda.broker.metadata.metadata_cache import MetadataCache
    from rotunda.broker.metrics.broker_reading import Names, Segments, Topic
    from rotunda.broker.runtime.signals import StopFlag
    from rotunda.broker.status.history import HistoryReader
    from rotunda.broker.status.page_tls import PageTls
    from rotunda.web.http.access import Admission
    from rotunda.web.http.room import Room
    from rotunda.web.sources import BrokerFacts, ReadRecords, Setting, Sources

#: The page yields to processes that serve clients, but only once it is loaded: at this niceness loading would take
#: 10 s with ten busy processes per CPU, and its 0.3 s of CPU time, once, do not burden clients.
NICENESS = 5


def run(context: ProcessContext, index: int, generation: int, stop: StopFlag) -> None:
    """Serve the status page until stopped."""
    assert context.status_socket is not None  # noqa: S101 - the process exists only with this socket
    context.mark_ready(Role.WEB, index, generation)
    listening = context.status_socket.fileno()

    settings = context.live_settings()
    tls = _tls(settings) if context.config.status_ssl_enable else None

    def beat() -> None:
        if settings.refresh() and tls is not None:
            settings.apply(tls.follow)
        context.slots.beat(Role.WEB, index, SystemClock.monotonic_ns())

    while listening not in select.select((listening, stop.fileno()), (), (), BEAT_S)[0]:
        if stop.is_set():
            return
        beat()
    from rotunda.web.server import serve  # noqa: PLC0415 - saves 30 MB while the page is unused

    metadata = _metadata(context)
    admission = _admission(context, settings, metadata)
    sources = replace(
        sources_of(context, metadata),
        admission=admission,
        records=_records(context, settings),
        tls=None if tls is None else tls.context,
    )
    room = _room_of(context, generation)
    os.nice(NICENESS)
    serve(sources, room, context.status_socket, stop.fileno(), beat)


def _tls(settings: LiveSettings) -> PageTls:
    from rotunda.broker.status.page_tls import PageTls  # noqa: PLC0415 - OpenSSL is loaded only if needed

    return PageTls(settings)


def _records(context: ProcessContext, settings: LiveSettings) -> ReadRecords | None:
    """Return the reader of records; None if it is disabled."""
    from rotunda.broker.status.page_records import PageRecords  # noqa: PLC0415

    config = context.config
    if not config.shows_records:
        return None
    return PageRecords(settings, context.listeners, config.status_token or "", SystemClock()).read


def _metadata(context: ProcessContext) -> MetadataCache:
    from rotunda.broker.metadata.metadata_cache import MetadataCache  # noqa: PLC0415
    from rotunda.broker.metadata.store.metadata_file import metadata_path  # noqa: PLC0415

    return MetadataCache(metadata_path(context.config.data_dir), context.handlers, context.config)


def _admission(context: ProcessContext, settings: LiveSettings, metadata: MetadataCache) -> Admission:
    """Return the access rules: on this machine open without a token; elsewhere also by user."""
    from rotunda.broker.config.settings.sasl import has_sasl  # noqa: PLC0415
    from rotunda.broker.security.acl.acls import CLUSTER_NAME, Operation, ResourceType  # noqa: PLC0415
    from rotunda.broker.security.session import Session  # noqa: PLC0415
    from rotunda.web.http.access import Admission  # noqa: PLC0415

    config = context.config
    is_user = None
    asks = config.status_token or not (is_loopback(config.status_host) or config.insecure_listen)
    if asks and any(has_sasl(listener) for listener in config.bound_listeners):
        from rotunda.broker.status.page_users import PageUsers  # noqa: PLC0415

        is_user = PageUsers(settings).is_user

    def may_look(name: str, host: str) -> bool:
        if metadata.authorizer is None:
            return True
        if context.broker_words.metadata_version > metadata.version or not metadata.version:
            metadata.refresh()
        session = Session(name, host)
        return metadata.authorizer.allows(session, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)

    return Admission(
        token=config.status_token or "",
        metrics_token=config.metrics_token or "",
        is_user=is_user,
        may_look=may_look,
    )


def _room_of(context: ProcessContext, generation: int) -> Room:
    from rotunda.web.http.room import Limits, Room  # noqa: PLC0415

    config, now_ns = context.config, SystemClock().monotonic_ns
    metrics = context.begin_metrics(Role.WEB, 0, generation)
    limits = Limits(
        connections=config.status_max_connections,
        streams=min(config.status_max_streams, config.status_max_connections // 2),
        timeout_s=config.status_request_timeout_ms / 1000,
    )
    return Room(limits, metrics, RepeatedWarnings(logging.getLogger("rotunda.web"), now_ns).warning)


def sources_of(context: ProcessContext, metadata: MetadataCache) -> Sources:
    """Return the sources of the page; all views are read-only except the readers' flags of the snapshots."""
    from rotunda.broker.cli.analysis.report import REPORTS  # noqa: PLC0415
    from rotunda.broker.metrics.broker_reading import BrokerReader  # noqa: PLC0415
    from rotunda.broker.protocol.api_keys import DEPRECATED_UP_TO  # noqa: PLC0415
    from rotunda.broker.status.report_jobs import report_jobs  # noqa: PLC0415
    from rotunda.broker.status.request_search import RequestSearch  # noqa: PLC0415
    from rotunda.shm.tables.recent_requests import RecentReader  # noqa: PLC0415
    from rotunda.web.sources import Sources  # noqa: PLC0415

    config = context.config
    refresh = _refresh(context, metadata)
    names, topics = _names(context), _topics(context, metadata, refresh)
    clock, history = SystemClock(), _history(config.data_dir / DIRECTORY)
    return Sources(
        facts=_facts(context, installed_version()),
        deprecated_up_to=DEPRECATED_UP_TO,
        reader=BrokerReader(
            _segments(context),
            installed_version(),
            names,
            topics,
            (clock.monotonic_ns, clock.wall_ms),
            per_partition=config.metrics_per_partition,
            per_client=config.metrics_per_client,
        ),
        recent=RecentReader(context.recent.view.toreadonly()),
        settings=_settings(metadata, refresh),
        topic_settings=_topic_settings(metadata, refresh),
        allowed_hosts=config.status_allowed_hosts,
        any_address=not is_loopback(config.status_host),
        disk=config.data_dir,
        reports=config.data_dir / REPORTS,
        jobs=report_jobs(),
        history=lambda from_ms, to_ms: history().read(from_ms, to_ms),
        search_requests=RequestSearch(config.data_dir).search,
    )


def _history(root: Path) -> Callable[[], HistoryReader]:
    """Return a function that returns the reader of the history; numpy and Arrow are loaded with its first call."""

    @cache
    def reader() -> HistoryReader:
        from rotunda.broker.status.history import HistoryReader  # noqa: PLC0415

        return HistoryReader(root)

    return reader


def _facts(context: ProcessContext, version: str) -> BrokerFacts:
    from rotunda.broker.runtime.run_dir import read  # noqa: PLC0415
    from rotunda.web.sources import BrokerFacts  # noqa: PLC0415

    record = read(context.run_dir)
    return BrokerFacts(
        version=version,
        instance=context.instance,
        pid=context.supervisor_pid,
        cluster_id=context.cluster_id,
        bootstrap=record.bootstrap if record is not None else "",
        data_dir=str(context.config.data_dir),
        run_dir=str(context.run_dir),
        listeners=ListenerNames(context.listener_table),
        started_ms=record.started_ms if record is not None else 0,
        request_log=str(context.config.data_dir / DIRECTORY),
        is_native=native.compiled is not None,
    )


def _segments(context: ProcessContext) -> Segments:
    from rotunda.broker.metrics.broker_reading import Segments  # noqa: PLC0415
    from rotunda.shm.control import ControlSegment  # noqa: PLC0415
    from rotunda.shm.metrics.process_metrics import MetricsSegment  # noqa: PLC0415
    from rotunda.shm.rings.recorder_rings import RecorderRings  # noqa: PLC0415
    from rotunda.shm.tables.snapshot_buffer import SnapshotSegment  # noqa: PLC0415

    processors, handlers = context.most_processors, context.most_handlers
    control, most = context.control.view.toreadonly(), context.config.max_partitions
    return Segments(
        control=ControlSegment(control, processors, handlers, most),
        metrics=MetricsSegment(context.metrics.view.toreadonly(), processors, handlers),
        rings=context.rings.view.toreadonly(),
        recorder=RecorderRings(
            context.recorder.view.toreadonly(),
            processors,
            handlers + 1,
            context.started_processors,
            lambda: context.broker_words.processors_made,
        ),
        snapshots=SnapshotSegment(context.snapshots.view, processors, handlers),
        quotas=context.quota_tables,
    )


def _names(context: ProcessContext) -> Names:
    from rotunda.broker.metrics.broker_reading import Names  # noqa: PLC0415
    from rotunda.broker.protocol.api_keys import ApiKey  # noqa: PLC0415
    from rotunda.broker.protocol.error_codes import ErrorCode  # noqa: PLC0415

    return Names(
        apis={int(key): key.text for key in ApiKey},
        errors={int(code): code.name for code in ErrorCode},
        listeners=ListenerNames(context.listener_table),
    )


def _refresh(context: ProcessContext, metadata: MetadataCache) -> Callable[[], None]:
    """Return a function that refreshes the metadata. If they are unreadable, the page shows the last state."""
    warnings = RepeatedWarnings(logging.getLogger("rotunda.web"), SystemClock().monotonic_ns)

    def refresh() -> None:
        if context.broker_words.metadata_version <= metadata.version and metadata.version:
            return
        try:
            metadata.refresh()
        except sqlite3.Error as failure:
            text = "the status page shows old topics and settings, cannot read the metadata file: %s"
            warnings.warning("metadata", text, failure)

    return refresh


def _topics(context: ProcessContext, metadata: MetadataCache, refresh: Callable[[], None]) -> Callable[[], list[Topic]]:
    known: list[Topic] = []
    known_version, handlers = -1, context.handlers

    def topics() -> list[Topic]:
        nonlocal known_version, handlers
        if context.handlers != handlers:
            known_version, handlers = -1, context.handlers
            metadata.own_by(handlers)
        refresh()
        if metadata.version != known_version:
            known_version = metadata.version
            known[:] = [
                (topic.name, topic.internal, [(each.index, each.row, each.owner) for each in topic.partitions])
                for topic in metadata.topics()
            ]
        return known

    return topics


def _settings(metadata: MetadataCache, refresh: Callable[[], None]) -> Callable[[], list[Setting]]:
    from rotunda.broker.config.broker_config import key_of  # noqa: PLC0415
    from rotunda.web.sources import Setting  # noqa: PLC0415

    def settings() -> list[Setting]:
        refresh()
        config = metadata.broker_config
        return [
            Setting(
                name,
                value,
                origin,
                name not in config.layers,
                key_of(name).dynamic,
                key_of(name).doc,
            )
            for name, value, origin in config.described()
        ]

    return settings


def _topic_settings(metadata: MetadataCache, refresh: Callable[[], None]) -> Callable[[str], list[Setting] | None]:
    from rotunda.broker.metadata.configs.config_descriptions import TOPIC_CONFIG, describe_topic  # noqa: PLC0415
    from rotunda.web.sources import Setting  # noqa: PLC0415

    def settings(name: str) -> list[Setting] | None:
        refresh()
        topic = metadata.topic(name)
        if topic is None:
            return None
        return [
            Setting(
                each.name,
                each.value or "",
                "set on the topic" if each.source == TOPIC_CONFIG else "the broker's",
                each.source != TOPIC_CONFIG,
                True,
                each.documentation,
            )
            for each in describe_topic(topic.configs, metadata.broker_config)
        ]

    return settings
