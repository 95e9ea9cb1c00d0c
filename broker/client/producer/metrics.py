"""Producer metrics by Kafka's names: totals and averages since its creation, returned by `Producer.metrics()`.

Each of Kafka's groups producer-metrics, producer-topic-metrics and producer-node-metrics has its own method. The I/O
thread counts, once per batch or request; any thread reads, and may see a sum before its count. Kafka's rates cover the
last half minute; these cover the producer's lifetime. For other intervals compute differences of the totals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rotunda.broker.client.network.metadata import ProducerMetadata
from rotunda.broker.client.network.network_client import NetworkClient
from rotunda.broker.client.network.selector import NodeTraffic, Selector
from rotunda.broker.client.producer.batches.buffer_pool import BufferPool
from rotunda.broker.client.producer.batches.producer_batch import ProducerBatch
from rotunda.broker.clock import Clock

_NS_OF_MS = 1_000_000
_NS_OF_S = 1_000_000_000


class Average:
    """Sum, count and maximum of a series of values."""

    __slots__ = ("count", "most", "total")

    def __init__(self) -> None:
        self.total = 0.0
        self.count = 0
        self.most = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Add a value that occurred `times` times."""
        self.total += value * times
        self.count += times
        if value > self.most:
            self.most = value

    def add_all(self, values: Sequence[float]) -> None:
        """Add values; at least one."""
        self.total += sum(values)
        self.count += len(values)
        self.most = max(self.most, *values)

    @property
    def mean(self) -> float:
        """The average; 0 without values."""
        return self.total / self.count if self.count else 0.0


class TopicCounts:
    """Counters of one topic's records."""

    __slots__ = ("bytes", "compression", "errors", "records", "retries")

    def __init__(self) -> None:
        self.records = self.bytes = self.retries = self.errors = 0
        self.compression = Average()


class ProducerMetrics:
    """The counters. The sender calls the methods `record_*`."""

    def __init__(
        self, pool: BufferPool, clock: Clock, selector: Selector, client: NetworkClient, metadata: ProducerMetadata
    ) -> None:
        self._pool = pool
        self._clock = clock
        self._selector = selector
        self._client = client
        self._metadata = metadata
        self._topics: dict[str, TopicCounts] = {}
        self._node_latency_ms: dict[int, Average] = {}
        self._start_ns = clock.monotonic_ns()
        self._splits = 0
        self._batch_bytes, self._records_per_request, self._latency_ms = Average(), Average(), Average()
        self._queue_ms, self._throttle_ms, self._compression = Average(), Average(), Average()
        self._record_bytes = Average()

    def record_sent(self, batches: Sequence[ProducerBatch]) -> None:
        records, topic, of_topic = 0, "", TopicCounts()
        for batch in batches:
            if batch.topic_partition.topic != topic:
                topic = batch.topic_partition.topic
                of_topic = self._topic(topic)
            records += batch.record_count
            of_topic.records += batch.record_count
            of_topic.bytes += batch.estimated_size_bytes
            of_topic.compression.add(batch.compression_ratio)
            self._record_bytes.add(len(batch.buffer) / batch.record_count, batch.record_count)
        self._batch_bytes.add_all([batch.estimated_size_bytes for batch in batches])
        self._queue_ms.add_all([batch.drained_ms - batch.created_ms for batch in batches])
        self._compression.add_all([batch.compression_ratio for batch in batches])
        self._records_per_request.add(records)

    def record_latency(self, node_id: int, latency_ms: float) -> None:
        self._latency_ms.add(latency_ms)
        average = self._node_latency_ms.get(node_id)
        if average is None:
            average = self._node_latency_ms[node_id] = Average()
        average.add(latency_ms)

    def record_throttle(self, throttle_ms: float) -> None:
        self._throttle_ms.add(throttle_ms)

    def record_retries(self, topic: str, records: int) -> None:
        self._topic(topic).retries += records

    def record_errors(self, topic: str, records: int) -> None:
        self._topic(topic).errors += records

    def record_split(self) -> None:
        """Record the split of a batch that was too large."""
        self._splits += 1

    def _topic(self, name: str) -> TopicCounts:
        counts = self._topics.get(name)
        if counts is None:
            counts = self._topics[name] = TopicCounts()
        return counts

    def read(self) -> dict[str, float]:
        seconds, pool, selector, counts = self._seconds(), self._pool, self._selector, self._selector.counts
        topics, traffic = list(self._topics.values()), list(selector.traffic.values())
        found = _totals_and_rates(
            {
                "record-send": sum(each.records for each in topics),
                "record-retry": sum(each.retries for each in topics),
                "record-error": sum(each.errors for each in topics),
                "batch-split": self._splits,
                "buffer-exhausted": pool.exhausted_count,
                "connection-creation": counts.connections_created,
                "connection-close": counts.connections_closed,
                "successful-authentication": counts.authentications,
                "failed-authentication": counts.failed_authentications,
                "successful-reauthentication": counts.renewals,
                **_traffic_totals(traffic),
            },
            seconds,
        )
        for name, average in {
            "batch-size": self._batch_bytes,
            "record-size": self._record_bytes,
            "request-latency": self._latency_ms,
            "record-queue-time": self._queue_ms,
            "produce-throttle-time": self._throttle_ms,
        }.items():
            found[f"{name}-avg"], found[f"{name}-max"] = average.mean, average.most
        found |= _request_sizes(traffic) | {
            "records-per-request-avg": self._records_per_request.mean,
            "compression-rate-avg": self._compression.mean,
            "requests-in-flight": float(self._client.in_flight_count),
            "connection-count": float(selector.connection_count),
            "buffer-total-bytes": float(pool.total_bytes),
            "buffer-available-bytes": float(pool.available_bytes),
            "waiting-threads": float(pool.queued),
            "bufferpool-wait-time-ns-total": float(pool.waited_ns),
            "bufferpool-wait-ratio": pool.waited_ns / _NS_OF_S / seconds,
            "metadata-age": self._metadata_age_s(),
        }
        return found

    def read_topics(self) -> dict[str, dict[str, float]]:
        """Return the metrics of the group producer-topic-metrics, by topic."""
        seconds = self._seconds()
        return {
            name: _totals_and_rates(
                {
                    "record-send": each.records,
                    "record-retry": each.retries,
                    "record-error": each.errors,
                    "byte": each.bytes,
                },
                seconds,
            )
            | {"compression-rate": each.compression.mean}
            for name, each in list(self._topics.items())
        }

    def read_nodes(self) -> dict[int, dict[str, float]]:
        """Return the metrics of the group producer-node-metrics, by broker."""
        seconds, found = self._seconds(), {}
        for node_id, each in list(self._selector.traffic.items()):
            latency_ms = self._node_latency_ms.get(node_id) or Average()
            found[node_id] = _totals_and_rates(_traffic_totals([each]), seconds) | _request_sizes([each])
            found[node_id] |= {"request-latency-avg": latency_ms.mean, "request-latency-max": latency_ms.most}
        return found

    def _metadata_age_s(self) -> float:
        now_ms, start_ms = self._clock.monotonic_ns() / _NS_OF_MS, self._start_ns / _NS_OF_MS
        return max(0.0, now_ms - max(start_ms, self._metadata.last_successful_update_ms)) / 1000

    def _seconds(self) -> float:
        return max((self._clock.monotonic_ns() - self._start_ns) / _NS_OF_S, 1e-9)


def _totals_and_rates(totals: Mapping[str, int], seconds: float) -> dict[str, float]:
    return {f"{name}-total": float(total) for name, total in totals.items()} | {
        f"{name}-rate": total / seconds for name, total in totals.items()
    }


def _traffic_totals(traffic: Sequence[NodeTraffic]) -> dict[str, int]:
    return {
        "request": sum(each.requests for each in traffic),
        "response": sum(each.responses for each in traffic),
        "outgoing-byte": sum(each.bytes_sent for each in traffic),
        "incoming-byte": sum(each.bytes_received for each in traffic),
    }


def _request_sizes(traffic: Sequence[NodeTraffic]) -> dict[str, float]:
    totals = _traffic_totals(traffic)
    return {
        "request-size-avg": totals["outgoing-byte"] / max(1, totals["request"]),
        "request-size-max": float(max((each.largest_request_bytes for each in traffic), default=0)),
    }
