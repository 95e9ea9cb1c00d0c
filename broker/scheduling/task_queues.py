"""Queues of tasks that keep their order and may need more than their share of a turn.

Runs in handler processes. A task starts immediately. If it does not end within its share of the turn it continues in
slices, and the later tasks of its queue wait for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import NamedTuple

from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.scheduling.slices import SlicedWork, Slices, Work
from rotunda.shm.tables.current_request import Identity

#: Time of a task in the turn in which it arrives.
AT_ONCE_NS = 5_000_000


class RequestIdentity(NamedTuple):
    """The request of a task, and the client that sent it."""

    identity: Identity
    client_id: str


class TaskQueues:
    """The running tasks, and those that wait for them; ``api`` is the name of their API."""

    def __init__(self, api: str, slices: Slices, now_ns: Callable[[], int]) -> None:
        self._api = api
        self._slices = slices
        self._now_ns = now_ns
        self._queues: dict[Hashable, deque[SlicedWork]] = {}

    def has(self, queue_key: Hashable) -> bool:
        """Whether a task of a queue is running."""
        return queue_key in self._queues

    def take(self, queue_key: Hashable, whose: RequestIdentity, work: Work, failed: Callable[[], None]) -> None:
        """Run a task, now as far as possible, then in slices. Raises faults of now; later it calls ``failed``."""
        waiting = self._queues.get(queue_key)
        if waiting is not None:
            waiting.append(self._in_slices(queue_key, whose, work, failed))
            return
        end_ns = self._now_ns() + AT_ONCE_NS
        for waits_for in work:
            if waits_for is not None or self._now_ns() >= end_ns:
                rest = self._in_slices(queue_key, whose, _rest(waits_for, work), failed)
                self._queues[queue_key] = deque((rest,))
                self._slices.add_now(rest)
                return

    def _in_slices(
        self, queue_key: Hashable, whose: RequestIdentity, work: Work, failed: Callable[[], None]
    ) -> SlicedWork:
        def ended(_: object = None) -> None:
            self._next(queue_key)

        def ended_badly() -> None:
            try:
                failed()
            finally:
                self._next(queue_key)

        return SlicedWork(work, queue_key, ended, ended_badly, (self._api, whose.client_id), identity=whose.identity)

    def _next(self, queue_key: Hashable) -> None:
        waiting = self._queues[queue_key]
        waiting.popleft()
        if waiting:
            self._slices.add_now(waiting[0])
        else:
            del self._queues[queue_key]


def _rest(waits_for: Deferred | None, work: Work) -> Work:
    yield waits_for
    yield from work
