"""What a call to the transaction manager ends with, and where its caller waits for it.

The application's thread waits, the I/O thread settles; the asyncio face is called back instead of waiting. It knows
nothing of requests.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from broker.client.errors import DeliveryTimeout, KafkaError


class TransactionalRequestResult:
    """The outcome of one operation, named for people: `InitProducerId`, `EndTxn(True)`."""

    __slots__ = ("_callbacks", "_done", "_lock", "error", "is_acked", "operation")

    def __init__(self, operation: str) -> None:
        self.operation = operation
        self.error: KafkaError | None = None
        self.is_acked = False
        """Whether the caller has seen the outcome: until then it must ask again for the same (KIP-588)."""
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []

    @property
    def is_completed(self) -> bool:
        """Whether it has succeeded or failed."""
        return self._done.is_set()

    @property
    def is_successful(self) -> bool:
        """Whether it has succeeded."""
        return self.is_completed and self.error is None

    def done(self) -> None:
        """Settle it: it has succeeded, unless an error has been set before."""
        with self._lock:
            self._done.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def fail(self, error: KafkaError) -> None:
        """Settle it with an error. A later error replaces the earlier one, as in Kafka."""
        self.error = error
        self.done()

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """Call it once when this is settled: on the I/O thread, or at once if it is settled already."""
        with self._lock:
            if not self._done.is_set():
                self._callbacks.append(callback)
                return
        callback()

    def acknowledge(self) -> None:
        """Take note that the caller has the outcome. Raises the error of a failed operation."""
        self.is_acked = True
        if self.error is not None:
            raise self.error

    def wait(self, timeout_ms: float, hint: str) -> None:
        """Wait for the outcome. Raises the operation's error, or DeliveryTimeout with `hint`: what to do then."""
        if not self._done.wait(min(timeout_ms / 1000, threading.TIMEOUT_MAX)):
            raise DeliveryTimeout(f"{self.operation} has had no answer for {timeout_ms:g} ms (max.block.ms). {hint}")
        self.acknowledge()
