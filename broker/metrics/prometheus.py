"""A reading of the broker as text for Prometheus (exposition format 0.0.4). Pure: catalogue and reading in, text out.

Names are an interface: dashboards rely on them. They have one prefix, base units, and the suffix `_total` for counters.
Unknown values are absent. Sums over partitions are the default; a series for each partition is optional. No label has a
value that clients can choose freely, except for group ids, the names of their software, ids of clients that have a
quota, and the metrics that clients push; each of these has a maximum number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from rotunda.broker.metrics.broker_reading import ROW_OUTCOMES
from rotunda.broker.metrics.derived_metrics import DERIVED, SHARE_GROUP_COUNTERS
from rotunda.broker.metrics.quota_use import MOST_LISTED
from rotunda.shm.metrics.catalogue import CATALOGUE
from rotunda.shm.metrics.histogram import bounds_of
from rotunda.shm.metrics.metric import COUNTER, HISTOGRAM, Metric
from rotunda.shm.metrics.metric_tables import NO_TEXT, OTHER
from rotunda.shm.metrics.process_metrics import OTHER_API_KEY
from rotunda.shm.storage import StorageState

if TYPE_CHECKING:
    from rotunda.broker.metrics.broker_reading import BrokerReading, Partition
    from rotunda.shm.metrics.process_metrics import MetricsReading

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
PREFIX: Final = "rotunda_"

#: Upper bounds of the buckets of histograms in /metrics. A value within 2 % of a bound may be in the next bucket.
SECONDS_BOUNDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
BYTES_BOUNDS: Final = (64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)

#: The units of numbers in the pages, and their factors to base units.
_SCALES: Final = {"ns": 1e-9, "ms": 1e-3, "percent": 1e-2}
_BASE_UNITS: Final = (("_ns", "_seconds"), ("_ms", "_seconds"), ("_percent", "_ratio"))
_OTHER_TEXT: Final = "other"

Labels = Mapping[str, str]


def exposed_name(role: str, metric: Metric) -> str:
    """Return the name that a metric of a role's page has in /metrics; the controller's are those of a handler."""
    if metric.exposed:
        return PREFIX + metric.exposed
    name = metric.name
    for ending, base in _BASE_UNITS:
        if name.endswith(ending):
            name = name.removesuffix(ending) + base
    role = "handler" if role == "controller" else role
    return f"{PREFIX}{role}_{name}" + ("_total" if metric.kind == COUNTER else "")


def render(reading: BrokerReading, *, per_partition: bool = False) -> str:
    """Return the exposition of a reading; with samples of each partition if the reading or caller wants them."""
    per_partition = per_partition or reading.per_partition
    families = _Families()
    _add_pages(families, reading)
    _add_processes(families, reading)
    _add_rings(families, reading)
    _add_topics(families, reading, per_partition=per_partition)
    _add_groups(families, reading, per_partition=per_partition)
    _add_transactions(families, reading)
    _add_quotas(families, reading)
    if reading.per_client:
        _add_client_metrics(families, reading)
    for outcome in ROW_OUTCOMES:
        families.add("request_log_rows_total", reading.request_log[f"rows_{outcome}"], outcome=outcome)
    dropped = reading.request_log["rows_dropped"] + reading.request_log["events_dropped"]
    families.add("request_log_dropped_total", dropped)
    return families.text()


class _Families:
    """Samples by metric, in the order of the catalogues."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}
        for role, metrics in CATALOGUE.items():
            self._metrics |= {exposed_name(role, metric): metric for metric in metrics}
        for metrics in DERIVED.values():
            self._metrics |= {PREFIX + metric.name: metric for metric in metrics}
        self._samples: dict[str, list[str]] = {name: [] for name in self._metrics}

    def add(self, name: str, value: float, **labels: str) -> None:
        """Add a sample of a metric of `broker.metrics.derived_metrics`."""
        self.put(PREFIX + name, value, labels)

    def put(self, name: str, value: float, labels: Labels, ending: str = "") -> None:
        """Add a sample under a full name; `ending` is the suffix of a histogram's samples."""
        self._samples[name].append(f"{name}{ending}{_label_text(labels)} {_number(value)}")

    def text(self) -> str:
        """Return everything that has a sample."""
        lines = []
        for name, samples in self._samples.items():
            if samples:
                metric = self._metrics[name]
                lines += [f"# HELP {name} {_escape_help(metric.line)}", f"# TYPE {name} {metric.kind}", *samples]
        return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return repr(value) if isinstance(value, float) else str(int(value))


def _label_text(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items()) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


# ---- pages of processes ----------------------------------------------------------------------------------------------


def _add_pages(families: _Families, reading: BrokerReading) -> None:
    by_role: dict[str, list[MetricsReading]] = {}
    for page in reading.pages:
        by_role.setdefault(page.role, []).append(page)
    for role, pages in by_role.items():
        for metric in CATALOGUE[role]:
            name = exposed_name(role, metric)
            if metric.kind == HISTOGRAM:
                _add_histogram(families, name, metric, pages, reading)
            elif metric.keys:
                _add_table(families, name, metric, pages, reading)
            else:
                _add_words(families, name, metric, pages, reading)


def _add_words(
    families: _Families, name: str, metric: Metric, pages: Iterable[MetricsReading], reading: BrokerReading
) -> None:
    scale = _SCALES.get(metric.unit, 1)
    for page in pages:
        whose = _whose(page)
        for value in metric.values:
            labels = dict(whose)
            if metric.label == "listener":
                if int(value) >= len(reading.names.listeners):
                    continue
                labels[metric.label] = _named(metric.label, int(value), reading)
            elif metric.label:
                labels[metric.label] = value
            number = page.values[metric.name, value]
            if number or metric.unit != "ms":
                # The time of an event that has not happened yet is unknown.
                families.put(name, number * scale, labels)


def _whose(page: MetricsReading) -> Labels:
    if page.role in {"processor", "handler"}:
        return {page.role: str(page.index)}
    return {"handler": "controller"} if page.role == "controller" else {}


def _add_table(
    families: _Families, name: str, metric: Metric, pages: Iterable[MetricsReading], reading: BrokerReading
) -> None:
    """Add the sums over all processes: which of them it was helps no reader."""
    totals: Counter[tuple[tuple[str, str], ...]] = Counter()
    for page in pages:
        for key, value in page.tables[metric.name].items():
            totals[tuple(_key_labels(metric.keys, key, page, reading))] += value
    for labels, total in totals.items():
        if total or metric.kind == COUNTER:
            families.put(name, total, dict(labels))


def _key_labels(
    names: tuple[str, ...], key: tuple[int, ...], page: MetricsReading, reading: BrokerReading
) -> Iterator[tuple[str, str]]:
    for place, name in enumerate(names):
        part = None if key == OTHER else key[place]
        if name == "software":
            text = _OTHER_TEXT if part is None else page.texts.get(part, "" if part == NO_TEXT else _OTHER_TEXT)
            software, _, version = text.partition("\n")
            yield from (("client_software_name", software), ("client_software_version", version))
        else:
            yield name, _OTHER_TEXT if part is None else _named(name, part, reading)


def _named(label: str, number: int, reading: BrokerReading) -> str:
    names = reading.names
    if label == "listener":
        return names.listeners[number] if number < len(names.listeners) else str(number)
    known = {"api": names.apis, "error": names.errors}.get(label, {})
    return known.get(number, str(number))


def _add_histogram(
    families: _Families, name: str, metric: Metric, pages: list[MetricsReading], reading: BrokerReading
) -> None:
    scale = _SCALES.get(metric.unit, 1)
    bounds = SECONDS_BOUNDS if metric.unit == "ns" else BYTES_BOUNDS
    apis = dict.fromkeys(api for page in pages for _, api, _ in page.histograms)
    for api in apis:
        labels = {"api": _OTHER_TEXT if api == OTHER_API_KEY else reading.names.apis.get(api, str(api))}
        for value in metric.values:
            key = (metric.name, api, value)
            found = [page.histograms[key] for page in pages if key in page.histograms]
            counts = [sum(column) for column in zip(*(each.counts for each in found), strict=True)]
            whose = labels | ({"stage": value} if value else {})
            below = _cumulated(counts, scale, bounds)
            for bound, count in zip(bounds, below, strict=True):
                families.put(name, count, whose | {"le": repr(float(bound))}, "_bucket")
            families.put(name, sum(counts), whose | {"le": "+Inf"}, "_bucket")
            families.put(name, sum(each.sum for each in found) * scale, whose, "_sum")
            families.put(name, sum(counts), whose, "_count")


def _cumulated(counts: Iterable[int], scale: float, bounds: tuple[float, ...]) -> list[int]:
    """Return the number of values at or below each bound; a bucket counts with its middle."""
    below = [0] * len(bounds)
    place = 0
    for bucket, count in enumerate(counts):
        if not count:
            continue
        low, high = bounds_of(bucket)
        while place < len(bounds) and (low + high) / 2 * scale > bounds[place]:
            place += 1
        if place == len(bounds):
            break
        below[place] += count
    total = 0
    for place, count in enumerate(below):
        total += count
        below[place] = total
    return below


# ---- derived by readers ----------------------------------------------------------------------------------------------


def _add_processes(families: _Families, reading: BrokerReading) -> None:
    families.add("build_info", 1, version=reading.version)
    families.add("draining", reading.is_draining)
    families.add("storage_state", reading.storage.state)
    families.add("storage_free_bytes", reading.storage.free_bytes)
    families.add("storage_refuses_records", bool(reading.storage.rejection))
    families.add("offline_log_directories", reading.storage.state == StorageState.GONE)
    for process in reading.processes:
        if process.state == "empty":
            # Not every broker has every role.
            continue
        whose = {"role": process.role, "index": str(process.index)}
        families.add("process_ready", process.state == "running" and process.ready, **whose)
        families.add("process_restarts_total", process.restarts, **whose)
        if process.heartbeat_ns:
            age_ns = max(0, reading.time_ns - process.heartbeat_ns)
            families.add("process_heartbeat_age_seconds", age_ns / 1e9, **whose)


def _add_rings(families: _Families, reading: BrokerReading) -> None:
    for kind, source, destination, fill in reading.rings:
        ends = {"ring": kind, "source": source, "destination": destination}
        families.add("ring_used_bytes", fill.used_bytes, **ends)
        families.add("ring_capacity_bytes", fill.capacity_bytes, **ends)
        if kind == "request":
            families.add("request_queue_size", fill.frames, processor=source, handler=destination)
        elif kind == "response":
            families.add("response_queue_size", fill.frames, processor=destination, handler=source)


def _add_topics(families: _Families, reading: BrokerReading, *, per_partition: bool) -> None:
    for topic, partitions in reading.topics.items():
        families.add("topic_partitions", len(partitions), topic=topic)
        families.add("topic_offline_partitions", sum(not each.is_open for each in partitions), topic=topic)
        families.add("topic_log_bytes", sum(each.log_bytes for each in partitions), topic=topic)
        families.add("topic_records_in_total", sum(each.records_in for each in partitions), topic=topic)
        families.add("topic_bytes_in_total", sum(each.bytes_in for each in partitions), topic=topic)
        families.add("topic_bytes_out_total", sum(each.bytes_out for each in partitions), topic=topic)
        if per_partition:
            for partition in partitions:
                _add_partition(families, topic, partition)


def _add_partition(families: _Families, topic: str, partition: Partition) -> None:
    whose = {"topic": topic, "partition": str(partition.number)}
    if partition.is_open:
        families.add("partition_log_start_offset", partition.start, **whose)
        families.add("partition_log_end_offset", partition.end, **whose)
        families.add("partition_last_stable_offset", partition.stable, **whose)
        families.add("partition_log_bytes", partition.log_bytes, **whose)


def _add_groups(families: _Families, reading: BrokerReading, *, per_partition: bool) -> None:
    states: Counter[str] = Counter()
    for handler, snapshot in reading.snapshots.items():
        states.update(snapshot["group_states"])
        families.add("groups_left_out", snapshot["left_out"].get("groups", 0), handler=str(handler))
        for group in snapshot["groups"]:
            families.add("group_members", len(group["members"]), group=group["id"])
            for topic, offsets in group["offsets"].items():
                _add_lag(families, {"group": group["id"], "topic": topic}, offsets.values())
                if per_partition:
                    _add_partition_lags(families, {"group": group["id"], "topic": topic}, offsets)
        _add_share_groups(families, snapshot["share_partitions"])
    if reading.groups_known:
        for state, count in states.items():
            kind, _, name = state.partition("/")
            families.add("groups", count, kind=kind, state=name)


def _add_share_groups(families: _Families, share_partitions: Iterable[Mapping[str, Any]]) -> None:
    by_topic: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for each in share_partitions:
        by_topic.setdefault((each["group"], each["topic"]), []).append(each)
    for (group, topic), partitions in by_topic.items():
        whose = {"group": group, "topic": topic}
        read = [each for each in partitions if "lag" in each]
        if read:
            families.add("group_lag_records", sum(each["lag"] for each in read), **whose)
        ages = [each["lag_s"] for each in partitions if "lag_s" in each]
        if ages:
            families.add("group_lag_seconds", max(ages), **whose)
        for gauge in ("in_flight", "waiting"):
            families.add(f"share_group_records_{gauge}", sum(each.get(gauge, 0) for each in partitions), **whose)
        for counter in SHARE_GROUP_COUNTERS:
            families.add(f"share_group_{counter}_total", sum(each[counter] for each in partitions), **whose)


def _add_client_metrics(families: _Families, reading: BrokerReading) -> None:
    for handler, snapshot in reading.snapshots.items():
        families.add("client_instances_left_out", snapshot["left_out"]["client_metrics"], handler=str(handler))
        for client in snapshot["client_metrics"]:
            whose = {"instance": client["instance"], "client_id": client["client_id"]}
            for each in client["values"]:
                attributes = ",".join(f"{name}={value}" for name, value in each["attributes"].items())
                families.add("client_metric", each["value"], **whose, metric=each["name"], attributes=attributes)


def _add_lag(families: _Families, whose: Labels, offsets: Collection[Mapping[str, Any]]) -> None:
    lags = [(each["lag"], each["committed_lag"]) for each in offsets if "lag" in each]
    ages = [each["lag_s"] for each in offsets if "lag_s" in each]
    if lags:
        families.add("group_lag_records", sum(lag for lag, _ in lags), **whose)
        families.add("group_committed_lag_records", sum(lag for _, lag in lags), **whose)
    if ages:
        families.add("group_lag_seconds", max(ages), **whose)
    families.add("group_unknown_lag_partitions", sum("lag" not in each for each in offsets), **whose)


def _add_partition_lags(families: _Families, whose: Labels, offsets: Mapping[str, Mapping[str, Any]]) -> None:
    for partition, committed in offsets.items():
        for key, name in (("offset", "offset"), ("lag", "lag_records"), ("lag_s", "lag_seconds")):
            if key in committed:
                families.add(f"group_partition_{name}", committed[key], **whose, partition=str(partition))


def _add_transactions(families: _Families, reading: BrokerReading) -> None:
    if not reading.groups_known:
        return
    states: Counter[str] = Counter()
    oldest_ms = 0
    for snapshot in reading.snapshots.values():
        states.update(snapshot["transaction_states"])
        begun = [each["start_ms"] for each in snapshot["transactions"] if each["start_ms"] >= 0]
        oldest_ms = max([oldest_ms, *(reading.wall_ms - start_ms for start_ms in begun)])
    for state, count in states.items():
        families.add("transactions", count, state=state)
    families.add("transaction_oldest_age_seconds", oldest_ms / 1000)


def _add_quotas(families: _Families, reading: BrokerReading) -> None:
    for use in reading.quotas[:MOST_LISTED]:
        whose = {"quota": use.quota, "user": use.user, "client_id": use.client_id}
        families.add("client_quota_limit", float(use.limit), **whose)
        if use.rate is not None:
            families.add("client_quota_rate", use.rate, **whose)
        families.add("client_quota_throttled_total", use.throttled, **whose)
        families.add("client_quota_throttle_seconds_total", use.throttle_ms / 1000, **whose)
    families.add("client_quotas_left_out", max(0, len(reading.quotas) - MOST_LISTED))
