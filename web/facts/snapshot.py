"""The snapshot computed from two readings: rates, idle shares, ring fill. Pure; returns `web.facts.status` types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rotunda.broker.metrics.quota_use import MOST_LISTED
from rotunda.web.facts.certificates import certificate_remarks
from rotunda.web.facts.clients import client_instances_of, clients_of, left_out, quotas_of
from rotunda.web.facts.groups import groups_of, transactions_of
from rotunda.web.facts.growth import Growth, total
from rotunda.web.facts.status import (
    Acceptor,
    Api,
    Broker,
    Group,
    Partition,
    Process,
    Processor,
    Ring,
    Snapshot,
    Target,
    Topic,
    Totals,
)
from rotunda.web.facts.verdict import (
    RECORDER_RING,
    REQUEST_RING,
    RESPONSE_RING,
    hangs,
    not_ready,
    remarks,
    storage_remarks,
    verdict,
)

if TYPE_CHECKING:
    from rotunda.broker.metrics.broker_reading import Names
    from rotunda.broker.metrics.broker_reading import Partition as PartitionReading
    from rotunda.broker.metrics.broker_reading import Ring as RingReading
    from rotunda.shm.metrics.histogram import HistogramReading
    from rotunda.shm.metrics.process_metrics import MetricsReading
    from rotunda.web.facts.readings import Reading
    from rotunda.web.sources import BrokerFacts, Sources, TopicFacts


#: Rings for requests, and for their rows in the request log.
RING_KINDS = frozenset((REQUEST_RING, RESPONSE_RING, RECORDER_RING))


def snapshot(earlier: Reading | None, now: Reading, sources: Sources) -> Snapshot:
    """Return the snapshot of the readings; rates are means of the time between them."""
    facts = sources.facts
    growth = Growth(earlier, now)
    processes = _processes(growth, earlier, now)
    turns = {(each.role, each.index) for each in processes if not hangs(each)}
    processors = [_processor(growth, now, index, turns) for index in range(now.broker.processors)]
    handlers = [_target(growth, now, "handler", index, turns) for index in range(now.broker.handlers)]
    controller = _target(growth, now, "controller", 0, turns)
    rings = [_ring(each, now.broker.handlers) for each in now.broker.rings if each.kind in RING_KINDS]
    topics = [_topic(growth, earlier, now, topic) for topic in now.topics if topic.name in now.broker.topics]
    groups = groups_of(now)
    storage = now.broker.storage
    reasons = not_ready(processes, is_draining=now.broker.is_draining, storage=storage)
    offline = [f"{topic.name}-{each.number}" for topic in topics for each in topic.partitions if not each.is_open]
    on_certificates = certificate_remarks(now.pages, facts.listeners, now.broker.wall_ms)
    warned = [*storage_remarks(storage, offline), *on_certificates]
    return Snapshot(
        time_ms=now.broker.wall_ms,
        window_s=growth.ns / 1e9 if growth.ns > 0 else None,
        ready=not reasons,
        reasons=reasons,
        remarks=[*remarks(processes), *warned],
        verdict=verdict(
            processors,
            [*handlers, controller],
            rings,
            processes,
            warned,
            groups,
            is_refusing=bool(storage.rejection or offline),
        ),
        broker=_broker(facts, now),
        totals=_totals(growth, processors, [*handlers, controller], topics, groups),
        acceptor=_acceptor(growth, now, facts),
        processors=processors,
        handlers=handlers,
        controller=controller,
        rings=rings,
        background={role: _plain(growth, now, role) for role in ("cleaner", "recorder")},
        apis=_apis(growth, earlier, now, sources.reader.names),
        topics=topics,
        clients=clients_of(earlier, now, sources),
        clients_left_out=left_out(now.connections, "connections"),
        client_instances=client_instances_of(now),
        client_instances_left_out=left_out(now.broker.snapshots, "client_metrics"),
        quotas=quotas_of(now),
        quotas_left_out=max(0, len(now.broker.quotas) - MOST_LISTED),
        groups=groups,
        groups_left_out=left_out(now.broker.snapshots, "groups"),
        transactions=transactions_of(now),
        processes=processes,
    )


def _broker(facts: BrokerFacts, now: Reading) -> Broker:
    return Broker(
        version=facts.version,
        instance=facts.instance,
        pid=facts.pid,
        cluster_id=facts.cluster_id,
        bootstrap=facts.bootstrap,
        data_dir=facts.data_dir,
        run_dir=facts.run_dir,
        request_log=facts.request_log,
        started_ms=facts.started_ms,
        is_native=facts.is_native,
        disk_free_bytes=now.disk_free_bytes,
        disk_bytes=now.disk_bytes,
    )


def _totals(
    growth: Growth, processors: list[Processor], targets: list[Target], topics: list[Topic], groups: list[Group]
) -> Totals:
    lag_s, lagging = max(((each.lag_s, each.id) for each in groups if each.lag_s is not None), default=(None, None))
    return Totals(
        requests_per_s=growth.sum_per_s("processor", len(processors), "responses_sent"),
        errors_per_s=total(each.errors_per_s for each in targets),
        bytes_in_per_s=total(each.bytes_in_per_s for each in processors),
        bytes_out_per_s=total(each.bytes_out_per_s for each in processors),
        records_per_s=total(each.records_per_s for each in targets),
        connections=sum(each.connections for each in processors),
        topics=sum(1 for topic in topics if not topic.internal),
        partitions=sum(len(topic.partitions) for topic in topics if not topic.internal),
        log_bytes=sum(topic.size_bytes for topic in topics),
        longest_lag_s=lag_s,
        longest_lag_group=lagging,
    )


def _acceptor(growth: Growth, now: Reading, facts: BrokerFacts) -> Acceptor:
    labels = [str(index) for index in range(len(facts.listeners))]
    blocked = [growth.per_s("acceptor", 0, "blocked_ns", label) for label in labels]
    known = [each / 1e9 for each in blocked if each is not None]
    return Acceptor(
        accepted_per_s=total(growth.per_s("acceptor", 0, "connections_accepted", label) for label in labels),
        closed_per_s=total(growth.per_s("acceptor", 0, "connections_closed", label) for label in labels),
        blocked=min(1.0, max(known)) if known else None,
        accept_errors=_value(now.pages.get(("acceptor", 0)), "accept_errors"),
    )


def _processor(growth: Growth, now: Reading, index: int, turns: set[tuple[str, int]]) -> Processor:
    """Return a processor's figures; the idle share of a hanging loop is unknown."""
    page = now.pages.get(("processor", index))
    idle = growth.share("processor", index, "io_wait_ns", "io_ns") if ("processor", index) in turns else None
    causes = [label for name, label in page.values if name == "mutes"] if page is not None else []
    mutes = {cause: growth.per_s("processor", index, "mutes", cause) for cause in causes}
    used = _value(page, "arena_used_bytes")
    return Processor(
        index=index,
        idle=idle,
        requests_per_s=growth.per_s("processor", index, "requests_received"),
        bytes_in_per_s=growth.per_s("processor", index, "bytes_received"),
        bytes_out_per_s=growth.per_s("processor", index, "bytes_sent"),
        connections=_value(page, "connections"),
        arena_used_bytes=used,
        arena_bytes=used + _value(page, "arena_free_bytes"),
        mutes_per_s={cause: rate for cause, rate in mutes.items() if rate},
        requests_kept_bytes=_value(page, "requests_kept_bytes"),
        answers_unwritten_bytes=_value(page, "answers_unwritten_bytes"),
        answers_held_back=_value(page, "answers_held_back"),
    )


def _target(growth: Growth, now: Reading, role: str, index: int, turns: set[tuple[str, int]]) -> Target:
    """Return the figures of a handler or the controller, as `_processor` does."""
    idle = growth.share(role, index, "idle_ns", "busy_ns") if (role, index) in turns else None
    return Target(
        index=index,
        idle=idle,
        requests_per_s=growth.per_s(role, index, "requests_handled"),
        errors_per_s=growth.per_s(role, index, "errors"),
        records_per_s=growth.per_s(role, index, "records_appended"),
        bytes_per_s=growth.per_s(role, index, "bytes_appended"),
        commits_per_s=growth.per_s(role, index, "commits"),
        parked_per_s=growth.per_s(role, index, "fetches_parked"),
        overload_throttle_ms=_value(now.pages.get((role, index)), "overload_throttle_ns") // 1_000_000,
    )


def _ring(each: RingReading, handlers: int) -> Ring:
    source, destination = _end(each.source, handlers), _end(each.destination, handlers)
    used, frames, capacity = each.fill
    return Ring(
        kind=each.kind,
        processor=destination if each.kind == RESPONSE_RING else source,
        target=source if each.kind == RESPONSE_RING else destination,
        used_bytes=used,
        capacity_bytes=capacity,
        frames=frames,
        fill=min(1.0, used / capacity) if capacity else 0.0,
    )


def _end(name: str, handlers: int) -> int:
    """Return the number of a ring's end: a processor's or handler's own; the controller follows the handlers."""
    number = name.rpartition(" ")[2]
    return int(number) if number.isdecimal() else handlers


def _plain(growth: Growth, now: Reading, role: str) -> dict[str, float]:
    """Return a background process's values: gauges as they are, and the growth of counters as `…_per_s`."""
    page = now.pages.get((role, 0))
    values: dict[str, float] = {}
    for name, value in page.values if page is not None else ():
        if value:
            continue
        values[name] = _value(page, name)
        rate = growth.per_s(role, 0, name)
        if rate is not None:
            values[f"{name}_per_s"] = rate
    return values


def _apis(growth: Growth, earlier: Reading | None, now: Reading, names: Names) -> list[Api]:
    found: dict[int, dict[str, list[HistogramReading]]] = {}
    for key, page in now.pages.items():
        before = earlier.pages.get(key) if earlier is not None else None
        for (api_key, phase), histogram in page.phases.items():
            known = before.phases.get((api_key, phase)) if before is not None else None
            since = histogram.since(known) if known is not None else histogram
            found.setdefault(api_key, {}).setdefault(phase, []).append(since)
    apis = [_api(growth, key, phases, names) for key, phases in found.items()]
    return sorted((api for api in apis if api.count), key=lambda api: -api.count)


def _api(growth: Growth, key: int, phases: dict[str, list[HistogramReading]], names: Names) -> Api:
    merged = {phase: _merged(histograms) for phase, histograms in phases.items()}
    count = merged["total"].count if "total" in merged else 0
    return Api(
        key=key,
        name=names.apis.get(key, "others" if key < 0 else str(key)),
        requests_per_s=growth.rate(count) if growth.ns > 0 else None,
        count=count,
        p50_us={phase: each.quantile(0.5) / 1000 for phase, each in merged.items()},
        p99_us={phase: each.quantile(0.99) / 1000 for phase, each in merged.items()},
        mean_us={phase: each.mean / 1000 for phase, each in merged.items()},
    )


def _merged(histograms: list[HistogramReading]) -> HistogramReading:
    first, *others = histograms
    if not others:
        return first
    counts = [sum(column) for column in zip(*(each.counts for each in histograms), strict=True)]
    return type(first)(counts, sum(each.sum for each in histograms), max(each.max for each in histograms))


def _topic(growth: Growth, earlier: Reading | None, now: Reading, topic: TopicFacts) -> Topic:
    owners = {each.number: each.owner for each in topic.partitions}
    read = [each for each in now.broker.topics[topic.name] if each.number in owners]
    before = {each.number: each for each in earlier.broker.topics.get(topic.name, ())} if earlier is not None else {}
    known = [(before[each.number], each) for each in read if each.number in before]

    def rate(name: str) -> float | None:
        grown = [max(0, getattr(after, name) - getattr(earlier_, name)) for earlier_, after in known]
        return growth.rate(sum(grown)) if grown else None

    return Topic(
        name=topic.name,
        internal=topic.internal,
        records=sum(each.end - each.start for each in read),
        size_bytes=sum(each.log_bytes for each in read),
        records_per_s=rate("records_in"),
        bytes_in_per_s=rate("bytes_in"),
        bytes_out_per_s=rate("bytes_out"),
        owners=sorted(set(owners.values())),
        partitions=[_partition(each, owners[each.number]) for each in read],
    )


def _partition(each: PartitionReading, owner: int) -> Partition:
    return Partition(
        number=each.number,
        owner=owner,
        start_offset=each.start,
        end_offset=each.end,
        stable_offset=each.stable,
        size_bytes=each.log_bytes,
        is_open=each.is_open,
    )


def _processes(growth: Growth, earlier: Reading | None, now: Reading) -> list[Process]:
    found = []
    for each in now.broker.processes:
        if each.role == "web" and each.state == "empty":
            continue
        usage = now.usage.get(each.pid)
        before = earlier.usage.get(each.pid) if earlier is not None else None
        used = usage.cpu_s - before.cpu_s if usage is not None and before is not None else None
        found.append(
            Process(
                role=each.role,
                index=each.index,
                pid=each.pid,
                state=each.state,
                serves=each.ready and each.state == "running",
                generation=each.generation,
                restarts=each.restarts,
                exit_status=each.exit_status,
                last_error=each.last_error,
                silent_s=(now.time_ns - each.heartbeat_ns) / 1e9 if each.heartbeat_ns else None,
                cpu=growth.rate(used),
                pss_bytes=usage.pss_bytes if usage is not None else None,
                threads=usage.threads if usage is not None else None,
                descriptors=usage.descriptors if usage is not None else None,
            )
        )
    return found


def _value(page: MetricsReading | None, name: str, label: str = "") -> int:
    return page.values.get((name, label), 0) if page is not None else 0
