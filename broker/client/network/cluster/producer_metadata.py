"""The metadata of a producer: the topics that it has written to lately, and waiting for a new one (`G05`).

Any thread adds topics and waits; the I/O thread updates. Kafka's ProducerMetadata.
"""

from __future__ import annotations

import random
import threading

from broker.client.errors import DeliveryTimeout, ProducerClosed
from broker.client.network.cluster.metadata import Metadata
from broker.client.network.cluster.metadata_response import MetadataResponse, metadata_request
from broker.client.network.network_config import NetworkConfig
from broker.client.network.requests import Build
from broker.clock import Clock

_NANOSECONDS = 1_000_000


class ProducerMetadata(Metadata):
    """Topics expire `metadata.max.idle.ms` after they were added last."""

    def __init__(self, config: NetworkConfig, chance: random.Random, clock: Clock) -> None:
        super().__init__(config, chance)
        self._max_idle_ms = config.metadata_max_idle_ms
        self._clock = clock
        #: When each is no longer of interest.
        self._topics: dict[str, float] = {}
        self._new_topics: set[str] = set()
        self._errors: dict[str, int] = {}

    def add(self, topic: str, now_ms: float) -> None:
        """Be about a topic, from now on or for longer; a new one is asked for at once."""
        with self._lock:
            is_new = topic not in self._topics
            self._topics[topic] = now_ms + self._max_idle_ms
            if is_new:
                self._new_topics.add(topic)
                self.request_update_for_new_topics()

    def request_update_for_topic(self, topic: str) -> int:
        """Want a topic: by itself as long as no response had it. Return the version now, for `await_update`."""
        with self._lock:
            if topic in self._new_topics:
                return self.request_update_for_new_topics()
            return self.request_update()

    def contains_topic(self, topic: str) -> bool:
        """Whether this is about a topic."""
        return topic in self._topics

    @property
    def topics(self) -> frozenset[str]:
        """What this is about."""
        with self._lock:
            return frozenset(self._topics)

    @property
    def new_topics(self) -> frozenset[str]:
        """Those that no response had yet."""
        with self._lock:
            return frozenset(self._new_topics)

    def error_of_topic(self, topic: str) -> int:
        """Return the code that the last response had for a topic; 0 for none."""
        return self._errors.get(topic, 0)

    def await_update(self, last_version: int, timeout_ms: float) -> None:
        """Wait until there is a newer version than that.

        Raises DeliveryTimeout, ProducerClosed when this is closed meanwhile, and the fatal error.
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
                    raise DeliveryTimeout(f"no metadata came within {timeout_ms:.0f} ms")
                self._lock.wait(min(left_ms / 1000, threading.TIMEOUT_MAX))

    def request_for_all(self) -> Build:
        """Return a request for all topics of interest."""
        return metadata_request(self._topics)

    def request_for_new_topics(self) -> Build:
        """Return a request for those that no response had yet."""
        return metadata_request(self._new_topics)

    def retain_topic(self, topic: str, is_internal: bool, now_ms: float) -> bool:
        """Whether a topic was used lately; one that was not is forgotten."""
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
