"""What was sent to each broker and is not answered yet, in the order in which it was sent (`G22`, `G23`).

Runs on the I/O thread. Kafka's InFlightRequests.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from broker.client.errors import IllegalState
from broker.client.network.network_send import NetworkSend
from broker.client.network.requests import ClientRequest
from broker.client.network.time_left import time_left_ms


@dataclass(slots=True)
class InFlightRequest:
    """A request that was given to the socket and has no response yet."""

    request: ClientRequest
    version: int
    send: NetworkSend
    sent_ms: float
    #: Sent by the network client itself, whose response nobody else sees.
    is_internal: bool
    throttle_ms: float = 0.0

    def is_expired(self, now_ms: float) -> bool:
        """Whether its response takes too long; the time that the broker wants to be left alone does not count."""
        return time_left_ms(self.expires_ms, now_ms) == 0

    @property
    def expires_ms(self) -> float:
        """When its response has taken too long."""
        return self.sent_ms + self.throttle_ms + self.request.timeout_ms


class InFlightRequests:
    """A deque a broker: what was sent last stands left, and responses complete what stands right."""

    def __init__(self, max_per_connection: int) -> None:
        self._max = max_per_connection
        self._requests: dict[int, deque[InFlightRequest]] = {}

    def add(self, request: InFlightRequest) -> None:
        """Note what is being sent."""
        self._requests.setdefault(request.request.node_id, deque()).appendleft(request)

    def oldest(self, node_id: int) -> InFlightRequest:
        """Return the one whose response comes next. Raises IllegalState if there is none."""
        return self._queue(node_id)[-1]

    def complete_next(self, node_id: int) -> InFlightRequest:
        """Take out the oldest, of which the response has come. Raises IllegalState if there is none."""
        return self._queue(node_id).pop()

    def last_sent(self, node_id: int) -> InFlightRequest:
        """Return the newest. Raises IllegalState if there is none."""
        return self._queue(node_id)[0]

    def complete_last_sent(self, node_id: int) -> InFlightRequest:
        """Take out the newest, of which no response will come. Raises IllegalState if there is none."""
        return self._queue(node_id).popleft()

    def can_send_more(self, node_id: int) -> bool:
        """Whether nothing is in flight, or fewer than may be and the newest has left entirely."""
        queue = self._requests.get(node_id)
        return not queue or (queue[0].send.completed and len(queue) < self._max)

    def count(self, node_id: int) -> int:
        """How many of a broker's there are."""
        queue = self._requests.get(node_id)
        return len(queue) if queue is not None else 0

    @property
    def total(self) -> int:
        """How many there are."""
        return sum(map(len, self._requests.values()))

    def clear(self, node_id: int) -> list[InFlightRequest]:
        """Take out all of a broker, and return them in the order in which they were sent."""
        return list(reversed(self._requests.pop(node_id, ())))

    def nodes_with_timed_out_requests(self, now_ms: float) -> list[int]:
        """Return the brokers of which any response takes too long."""
        return [
            node_id for node_id, queue in self._requests.items() if any(request.is_expired(now_ms) for request in queue)
        ]

    def next_timeout_ms(self, now_ms: float) -> float:
        """How long until the first response takes too long; infinity if none is awaited."""
        ends = [each.expires_ms for queue in self._requests.values() for each in queue]
        return time_left_ms(min(ends), now_ms) if ends else math.inf

    def increment_throttle_time(self, node_id: int, throttle_ms: float) -> None:
        """Give all of a broker that much longer."""
        for request in self._requests.get(node_id, ()):
            request.throttle_ms += throttle_ms

    def _queue(self, node_id: int) -> deque[InFlightRequest]:
        queue = self._requests.get(node_id)
        if not queue:
            raise IllegalState(f"there are no requests in flight to node {node_id}")
        return queue
