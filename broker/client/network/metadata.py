"""The client's view of the cluster, and when it is refreshed (`G02`, `G08`, `G10`).

The I/O thread updates it; other threads read `fetch()`, whose snapshots are immutable, and request updates. One lock
guards the rest. Kafka's Metadata and ProducerMetadata.
"""

from __future__ import annotations

import logging
import math
import random
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from rotunda.broker.client.errors import (
    DeliveryTimeout,
    IllegalState,
    InvalidMetadata,
    InvalidTopic,
    KafkaError,
    ProducerClosed,
    TopicAuthorizationFailed,
    error_of,
)
from rotunda.broker.client.network.addresses import HostAndPort
from rotunda.broker.client.network.backoff import ExponentialBackoff, time_left_ms
from rotunda.broker.client.network.network_config import NetworkConfig
from rotunda.broker.client.network.requests import Build
from rotunda.broker.client.network.snapshot import (
    ClusterSnapshot,
    MetadataResponse,
    Node,
    PartitionMetadata,
    TopicMetadata,
    metadata_request,
)
from rotunda.broker.clock import Clock
from rotunda.broker.protocol.error_codes import ErrorCode

logger = logging.getLogger(__name__)
_NANOSECONDS = 1_000_000


class MetadataRequestAndVersion(NamedTuple):
    """A request to send, and the arguments of `update` for its response."""

    build: Build
    request_version: int
    is_partial: bool


class LeaderIdAndEpoch(NamedTuple):
    """A partition's leader according to another API's response; -1 if absent."""

    leader_id: int
    epoch: int


class Metadata:
    """The client's view of the cluster. A subclass selects the topics."""

    def __init__(self, config: NetworkConfig, chance: random.Random) -> None:
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, chance)
        self._longest_backoff_ms = config.retry_backoff_max_ms
        self._max_age_ms = config.metadata_max_age_ms
        self._lock = threading.Condition()
        self._snapshot = ClusterSnapshot()
        self._bootstrap: tuple[HostAndPort, ...] = ()
        #: Incremented by each response; waiters wait for a change.
        self._update_version = 0
        #: Incremented by each new topic; responses to older requests do not include it.
        self._request_version = 0
        self._last_refresh_ms = -math.inf
        self._last_successful_refresh_ms = -math.inf
        self._attempts = 0
        self._equivalent_responses = 0
        self._need_full_update = False
        self._need_partial_update = False
        self._fatal_error: KafkaError | None = None
        self._invalid_topics: frozenset[str] = frozenset()
        self._unauthorized_topics: frozenset[str] = frozenset()
        self._last_seen_epochs: dict[tuple[str, int], int] = {}
        self._is_closed = False

    def fetch(self) -> ClusterSnapshot:
        return self._snapshot

    @property
    def update_version(self) -> int:
        """Number of snapshot replacements; the argument of `await_update`."""
        return self._update_version

    @property
    def last_successful_update_ms(self) -> float:
        """Time of the last successful full update; minus infinity for never."""
        return self._last_successful_refresh_ms

    @property
    def update_requested(self) -> bool:
        return self._need_full_update or self._need_partial_update

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def bootstrap(self, servers: Iterable[HostAndPort]) -> None:
        """Start with these servers alone and request an update (`G02`)."""
        with self._lock:
            self._bootstrap = tuple(servers)
            self._need_full_update = True
            self._update_version += 1
            self._snapshot = ClusterSnapshot.bootstrap(self._bootstrap)

    def rebootstrap(self) -> None:
        """Restart from the servers passed to `bootstrap`."""
        logger.info("rebootstrapping with %s", ", ".join(f"{host}:{port}" for host, port in self._bootstrap))
        self.bootstrap(self._bootstrap)

    def time_to_allow_update_ms(self, now_ms: float) -> float:
        """Return the remaining backoff: after failures, and after responses without changes."""
        with self._lock:
            if self._last_successful_refresh_ms + self._max_age_ms <= now_ms:
                self._equivalent_responses = 0
            backoff_ms = self._backoff.backoff_ms(max(self._attempts - 1, 0))
            if self._equivalent_responses:
                backoff_ms = max(backoff_ms, self._backoff.backoff_ms(self._equivalent_responses - 1))
            return time_left_ms(self._last_refresh_ms + backoff_ms, now_ms)

    def time_to_next_update_ms(self, now_ms: float) -> float:
        """Return the time until an update is due; 0 for now."""
        expires = 0.0
        if not self.update_requested:
            expires = time_left_ms(self._last_successful_refresh_ms + self._max_age_ms, now_ms)
        if expires >= self._longest_backoff_ms:
            return expires
        return max(expires, self.time_to_allow_update_ms(now_ms))

    def request_update(self, reset_backoff: bool = False) -> int:
        """Request a full update; set `reset_backoff` after a known change. Return the current update version."""
        with self._lock:
            self._need_full_update = True
            if reset_backoff:
                self._equivalent_responses = 0
            return self._update_version

    def request_update_for_new_topics(self) -> int:
        """Request the new topics immediately. Return the current update version."""
        with self._lock:
            self._last_refresh_ms = -math.inf
            self._need_partial_update = True
            self._equivalent_responses = 0
            self._request_version += 1
            return self._update_version

    def new_request(self, now_ms: float) -> MetadataRequestAndVersion:
        """Return the request to send now: for new topics only, unless a full update is due."""
        with self._lock:
            build = None
            if not self._need_full_update and self._last_successful_refresh_ms + self._max_age_ms > now_ms:
                build = self.request_for_new_topics()
            is_partial = build is not None
            return MetadataRequestAndVersion(build or self.request_for_all(), self._request_version, is_partial)

    def request_for_all(self) -> Build:
        return metadata_request(())

    def request_for_new_topics(self) -> Build | None:
        """Return a request for new topics; None if partial requests are not supported."""
        return None

    def retain_topic(self, topic: str, is_internal: bool, now_ms: float) -> bool:
        del topic, is_internal, now_ms
        return True

    def update(self, request_version: int, response: MetadataResponse, is_partial: bool, now_ms: float) -> None:
        """Apply a response to a request of that version. Raises IllegalState after `close`."""
        with self._lock:
            if self._is_closed:
                raise IllegalState("metadata update after close")
            self._need_partial_update = request_version < self._request_version
            self._last_refresh_ms = now_ms
            self._attempts = 0
            self._update_version += 1
            if not is_partial:
                self._need_full_update = False
                self._last_successful_refresh_ms = now_ms
            self._equivalent_responses += 1
            known = self._snapshot.cluster_id
            self._snapshot = self._merged(response, is_partial, now_ms)
            self._invalid_topics = self._snapshot.invalid_topics
            self._unauthorized_topics = self._snapshot.unauthorized_topics
            for kept in [each for each in self._last_seen_epochs if not self.retain_topic(each[0], False, now_ms)]:
                del self._last_seen_epochs[kept]
            if known != response.cluster_id:
                logger.info("Cluster ID: %s", response.cluster_id)
            self._updated(response)

    def _updated(self, response: MetadataResponse) -> None:
        """Wake waiters; subclasses extend this. The lock is held."""
        del response
        self._lock.notify_all()

    def failed_update(self, now_ms: float) -> None:
        with self._lock:
            self._last_refresh_ms = now_ms
            self._attempts += 1
            self._equivalent_responses = 0

    def fatal_error(self, error: KafkaError) -> None:
        """Store an error for the threads that wait for an update: the broker rejected this client."""
        with self._lock:
            self._fatal_error = error
            self._lock.notify_all()

    def raise_fatal_error(self) -> None:
        """Raise the fatal error, if any, once."""
        with self._lock:
            error, self._fatal_error = self._fatal_error, None
        if error is not None:
            raise error

    def raise_error_for_topic(self, topic: str) -> None:
        """Raise the fatal error, or the topic's error of the last response; both are cleared."""
        with self._lock:
            error: KafkaError | None = self._fatal_error
            if error is None and topic in self._unauthorized_topics:
                error = TopicAuthorizationFailed(f"Not authorized to access topics: [{topic}]")
            elif error is None and topic in self._invalid_topics:
                error = InvalidTopic(f"Invalid topics: [{topic}]")
            self._fatal_error = None
            self._invalid_topics = self._unauthorized_topics = frozenset()
        if error is not None:
            raise error

    def close(self) -> None:
        """Stop updates and wake the waiting threads."""
        with self._lock:
            self._is_closed = True
            self._lock.notify_all()

    def update_partition_leadership(
        self, leaders: Mapping[tuple[str, int], LeaderIdAndEpoch], nodes: Iterable[Node]
    ) -> set[tuple[str, int]]:
        """Apply leaders and brokers named by another API's response (`G10`, KIP-951).

        Return the partitions whose leader is newer than the known one and has a known address.
        """
        with self._lock:
            snapshot = self._snapshot
            known = {**snapshot.nodes, **{node.id: node for node in nodes}}
            updated = dict(snapshot.partitions)
            changed = set()
            for place, (leader_id, epoch) in leaders.items():
                current = snapshot.partitions.get(place)
                seen = self._last_seen_epochs.get(place, -1)
                if current is None or leader_id not in known or epoch < 0 or epoch <= seen:
                    continue
                updated[place] = current._replace(leader_id=leader_id, leader_epoch=epoch)
                self._last_seen_epochs[place] = epoch
                changed.add(place)
            if changed:
                self._snapshot = replace(snapshot, nodes=known, partitions=updated)
            return changed

    def _merged(self, response: MetadataResponse, is_partial: bool, now_ms: float) -> ClusterSnapshot:
        """Return the snapshot of a response, merged with the current one if it is partial."""
        old = self._snapshot
        answered = {topic.name for topic in response.topics}
        partitions: dict[tuple[str, int], PartitionMetadata] = {}
        topic_ids = {}
        errors: dict[int, set[str]] = {}
        internal = set()
        if is_partial:
            retained = {
                topic: topic not in answered and self.retain_topic(topic, topic in old.internal_topics, now_ms)
                for topic in {*old.topics, *old.topic_ids, *old.invalid_topics, *old.unauthorized_topics}
            }
            partitions = {place: each for place, each in old.partitions.items() if retained[each.topic]}
            topic_ids = {topic: topic_id for topic, topic_id in old.topic_ids.items() if retained[topic]}
            errors[ErrorCode.INVALID_TOPIC_EXCEPTION] = {each for each in old.invalid_topics if retained[each]}
            errors[ErrorCode.TOPIC_AUTHORIZATION_FAILED] = {each for each in old.unauthorized_topics if retained[each]}
            internal = {each for each in old.internal_topics if retained.get(each)}
        for topic in response.topics:
            if not self.retain_topic(topic.name, topic.is_internal, now_ms):
                continue
            if topic.is_internal:
                internal.add(topic.name)
            if topic.error:
                errors.setdefault(topic.error, set()).add(topic.name)
                self._want_update_for(topic.error)
                continue
            partitions |= self._latest_partitions(topic, response.has_reliable_leader_epochs)
            if topic.topic_id is not None:
                topic_ids[topic.name] = topic.topic_id
        return ClusterSnapshot(
            nodes=response.nodes,
            partitions=partitions,
            topic_ids=topic_ids,
            cluster_id=response.cluster_id,
            controller_id=response.controller_id,
            unauthorized_topics=frozenset(errors.get(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ())),
            invalid_topics=frozenset(errors.get(ErrorCode.INVALID_TOPIC_EXCEPTION, ())),
            internal_topics=frozenset(internal),
        )

    def _latest_partitions(self, topic: TopicMetadata, reliable: bool) -> dict[tuple[str, int], PartitionMetadata]:
        """Return a topic's partitions; the known metadata where the response is older."""
        old_id = self._snapshot.topic_ids.get(topic.name)
        is_another = topic.topic_id is not None and topic.topic_id != old_id
        found = {}
        for each in topic.partitions:
            place = topic.name, each.partition
            seen = self._last_seen_epochs.get(place)
            latest: PartitionMetadata | None = each
            if not reliable or each.leader_epoch is None:
                self._last_seen_epochs.pop(place, None)
                self._equivalent_responses = 0
                latest = each._replace(leader_epoch=None)
            elif seen is None or is_another or each.leader_epoch >= seen:
                if seen is None or is_another or each.leader_epoch > seen:
                    self._equivalent_responses = 0
                self._last_seen_epochs[place] = each.leader_epoch
            else:
                latest = self._snapshot.partitions.get(place)
            if latest is not None:
                found[place] = latest
            self._want_update_for(each.error)
        return found

    def _want_update_for(self, code: int) -> None:
        if code and isinstance(error_of(code), InvalidMetadata):
            self._need_full_update = True


class ProducerMetadata(Metadata):
    """Metadata of the topics in use; a topic expires `metadata.max.idle.ms` after its last use."""

    def __init__(self, config: NetworkConfig, chance: random.Random, clock: Clock) -> None:
        super().__init__(config, chance)
        self._max_idle_ms = config.metadata_max_idle_ms
        self._clock = clock
        #: Expiry time of each topic.
        self._topics: dict[str, float] = {}
        self._new_topics: set[str] = set()
        self._errors: dict[str, int] = {}

    def add(self, topic: str, now_ms: float) -> None:
        """Add a topic or extend its expiry; a new topic is requested immediately."""
        with self._lock:
            is_new = topic not in self._topics
            self._topics[topic] = now_ms + self._max_idle_ms
            if is_new:
                self._new_topics.add(topic)
                self.request_update_for_new_topics()

    def request_update_for_topic(self, topic: str) -> int:
        """Request an update for a topic: partial as long as it is new. Return the version for `await_update`."""
        with self._lock:
            if topic in self._new_topics:
                return self.request_update_for_new_topics()
            return self.request_update()

    @property
    def topics(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._topics)

    @property
    def new_topics(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._new_topics)

    def error_of_topic(self, topic: str) -> int:
        """Return a topic's error code in the last response; 0 for none."""
        return self._errors.get(topic, 0)

    def await_update(self, last_version: int, timeout_ms: float) -> None:
        """Wait for a newer version than `last_version`.

        Raises DeliveryTimeout, ProducerClosed if this is closed meanwhile, and the fatal error.
        """
        deadline_ms = self._now_ms() + timeout_ms
        with self._lock:
            while True:
                self.raise_fatal_error()
                if self._is_closed:
                    raise ProducerClosed("Requested metadata update after close")
                if self._update_version > last_version:
                    return
                left_ms = deadline_ms - self._now_ms()
                if left_ms <= 0:
                    raise DeliveryTimeout(f"no metadata within {timeout_ms:.0f} ms")
                self._lock.wait(min(left_ms / 1000, threading.TIMEOUT_MAX))

    def request_for_all(self) -> Build:
        return metadata_request(self._topics)

    def request_for_new_topics(self) -> Build:
        return metadata_request(self._new_topics)

    def retain_topic(self, topic: str, is_internal: bool, now_ms: float) -> bool:
        """Whether a topic was used recently; expired topics are removed."""
        del is_internal
        expires_ms = self._topics.get(topic)
        if expires_ms is None:
            return False
        if topic not in self._new_topics and expires_ms <= now_ms:
            del self._topics[topic]
            return False
        return True

    def _updated(self, response: MetadataResponse) -> None:
        self._errors = response.errors()
        self._new_topics.difference_update(topic.name for topic in response.topics)
        super()._updated(response)

    def _now_ms(self) -> float:
        return self._clock.monotonic_ns() / _NANOSECONDS
