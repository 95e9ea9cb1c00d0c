"""What went to one broker and what came from it, over all connections to it that there have been.

The selector counts, on the I/O thread, once a request and once a read; any thread may look.
"""

from __future__ import annotations


class NodeTraffic:
    """The counts of one broker."""

    __slots__ = ("bytes_received", "bytes_sent", "largest_request_bytes", "requests", "responses")

    def __init__(self) -> None:
        self.requests = self.responses = self.bytes_sent = self.bytes_received = self.largest_request_bytes = 0

    def sent(self, size_bytes: int) -> None:
        """Count a request that has left entirely."""
        self.requests += 1
        self.bytes_sent += size_bytes
        if size_bytes > self.largest_request_bytes:
            self.largest_request_bytes = size_bytes

    def received(self, size_bytes: int, responses: int) -> None:
        """Count what a read brought: bytes, and responses that are complete with them."""
        self.bytes_received += size_bytes
        self.responses += responses
