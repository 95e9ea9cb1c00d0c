"""Copies of unanswered requests, and the limit on their bytes.

Part of a processor. Except Produce, a request stays with its channel until its response, so that it can be resent to
the replacement of a dead target. Parked requests, such as a Fetch without records, stay for minutes, so their bytes are
counted. Each connection has `OWN_BYTES` of its own; further bytes are counted against the limit shared by all
connections of the processor, up to ``pipeline.max.bytes`` per connection. A connection above its limit, or without room
in the shared limit, is muted until enough of its own requests are answered: so no connection waits for another's
requests, and each may always send one. A request without room is served all the same, but not copied: if its target
dies, its connection is closed.
"""

from __future__ import annotations

from collections.abc import Callable

from rotunda.broker.network.processor.channel import Channel
from rotunda.broker.network.processor.throttling.mute_state import MuteCause

#: Per connection, independent of others: small requests are always copied, and counted with one addition.
OWN_BYTES = 8192

#: Bytes stored of a request that is not copied: its api key. No request is as short as this.
REMNANT_BYTES = 2


class KeptRequests:
    """The bytes kept by the channels of one processor."""

    def __init__(
        self, connection_most_bytes: int, total_most_bytes: int, processors: Callable[[], int] = lambda: 1
    ) -> None:
        """``processors`` returns the number of processors that share ``total_most_bytes``."""
        self._connection_most_bytes = connection_most_bytes
        self._total_most_bytes = total_most_bytes
        self._processors = processors
        #: The bytes of all channels beyond their `OWN_BYTES`.
        self.shared_bytes = 0
        #: Total of requests without room for a copy.
        self.not_kept = 0

    def keep(self, channel: Channel, sequence: int, received_ns: int, target: int, frame: bytes | memoryview) -> None:
        """Copy a request just sent, if there is room; mute its channel if it must not send more."""
        kept_bytes = channel.kept_bytes + len(frame)
        if self.shared_bytes + _shared(kept_bytes) - _shared(channel.kept_bytes) > self._most_bytes:
            self.not_kept += 1
            frame = frame[:REMNANT_BYTES]
            channel.muted |= MuteCause.PIPELINE_BYTES
        elif kept_bytes > self._connection_most_bytes:
            channel.muted |= MuteCause.PIPELINE_BYTES
        channel.repeatable[sequence] = (received_ns, target, bytes(frame))
        self._resize(channel, channel.kept_bytes + len(frame))

    def drop(self, channel: Channel, sequence: int) -> None:
        """Drop the copy of an answered request, if there is one."""
        request = channel.repeatable.pop(sequence, None)
        if request is not None:
            self._resize(channel, channel.kept_bytes - len(request[2]))

    def drop_all(self, channel: Channel) -> None:
        """Drop all copies of a channel."""
        channel.repeatable.clear()
        self._resize(channel, 0)

    def allows(self, channel: Channel) -> bool:
        """Return whether a channel muted for its copies may send again."""
        if channel.kept_bytes <= OWN_BYTES:
            return True
        return channel.kept_bytes <= self._connection_most_bytes and self.shared_bytes < self._most_bytes

    @property
    def _most_bytes(self) -> int:
        return self._total_most_bytes // self._processors()

    def _resize(self, channel: Channel, kept_bytes: int) -> None:
        self.shared_bytes += _shared(kept_bytes) - _shared(channel.kept_bytes)
        channel.kept_bytes = kept_bytes


def is_kept(frame: bytes) -> bool:
    """Return whether a channel has the whole frame of a request, and not only its api key."""
    return len(frame) > REMNANT_BYTES


def _shared(kept_bytes: int) -> int:
    return max(0, kept_bytes - OWN_BYTES)
