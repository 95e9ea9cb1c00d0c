"""Limits the memory of undelivered records to `buffer.memory`, granted in request order.

Kafka caches buffers of `batch.size`, since Java would clear new ones. Here a batch is a bytearray that grows with its
records, and Python's allocator caches freed memory, so the pool only counts bytes. Application threads wait for memory;
the I/O thread frees it.
"""

from __future__ import annotations

import threading
from collections import deque

from rotunda.broker.client.errors import BufferExhausted, ProducerClosed, RecordTooLarge
from rotunda.broker.clock import Clock


class _Waiter:
    """A thread that waits for memory."""

    __slots__ = ("is_served", "missing_bytes", "served")

    def __init__(self, missing_bytes: int) -> None:
        self.missing_bytes = missing_bytes
        self.served = threading.Event()
        self.is_served = False


class BufferPool:
    """A byte budget; waiters are served in order, partially as memory is freed (G17)."""

    def __init__(self, total_bytes: int, clock: Clock) -> None:
        self.total_bytes = total_bytes
        #: Total time that threads waited for memory, and the number of timeouts.
        self.waited_ns = 0
        self.exhausted_count = 0
        #: The thread that frees memory: it must not wait for itself.
        self.io_thread: int | None = None
        self._available_bytes = total_bytes
        self._waiters: deque[_Waiter] = deque()
        self._lock = threading.Lock()
        self._clock = clock
        self._is_closed = False

    @property
    def available_bytes(self) -> int:
        return self._available_bytes

    @property
    def queued(self) -> int:
        return len(self._waiters)

    def allocate(self, size_bytes: int, max_block_ms: float) -> None:
        """Wait for memory. Raises BufferExhausted, ProducerClosed, and RecordTooLarge if the pool is too small."""
        if size_bytes > self.total_bytes:
            raise RecordTooLarge(
                f"a batch of {size_bytes} bytes does not fit into the buffer memory of {self.total_bytes}: "
                "raise buffer.memory"
            )
        with self._lock:
            if self._is_closed:
                raise ProducerClosed("the producer was closed while a record was appended")
            if not self._waiters and self._available_bytes >= size_bytes:
                self._available_bytes -= size_bytes
                return
            waiter = _Waiter(size_bytes)
            self._waiters.append(waiter)
            self._serve()
        self._wait(waiter, size_bytes, max_block_ms)

    def try_allocate(self, size_bytes: int) -> bool:
        """Allocate memory if it is available and no thread waits."""
        with self._lock:
            if self._is_closed or self._waiters or self._available_bytes < size_bytes:
                return False
            self._available_bytes -= size_bytes
            return True

    def deallocate(self, size_bytes: int) -> None:
        """Free memory, for the longest waiting thread first."""
        with self._lock:
            self._available_bytes += size_bytes
            if self._waiters:
                self._serve()

    def close(self) -> None:
        """Fail the waiting threads and all later requests."""
        with self._lock:
            self._is_closed = True
            for waiter in self._waiters:
                waiter.served.set()

    def _wait(self, waiter: _Waiter, size_bytes: int, max_block_ms: float) -> None:
        start_ns = self._clock.monotonic_ns()
        if threading.get_ident() == self.io_thread:
            max_block_ms = 0
        try:
            waiter.served.wait(min(max_block_ms / 1000, threading.TIMEOUT_MAX))
        finally:
            with self._lock:
                self.waited_ns += self._clock.monotonic_ns() - start_ns
                if not waiter.is_served:
                    # Pass partially granted bytes on to the other waiters.
                    self._waiters.remove(waiter)
                    self._available_bytes += size_bytes - waiter.missing_bytes
                    self._serve()
        if self._is_closed and not waiter.is_served:
            raise ProducerClosed("the producer was closed while a record waited for buffer memory")
        if not waiter.is_served:
            self.exhausted_count += 1
            raise BufferExhausted(
                f"no memory for a batch of {size_bytes} bytes within {max_block_ms:.0f} ms: all "
                f"{self.total_bytes} bytes of buffer.memory have undelivered records"
            )

    def _serve(self) -> None:
        waiters = self._waiters
        while waiters and self._available_bytes:
            first = waiters[0]
            given = min(first.missing_bytes, self._available_bytes)
            first.missing_bytes -= given
            self._available_bytes -= given
            if first.missing_bytes:
                return
            waiters.popleft()
            first.is_served = True
            first.served.set()
