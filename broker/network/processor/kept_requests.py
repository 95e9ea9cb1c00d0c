"""The kept requests: copies of what is not answered yet, and how many bytes of them there may be.

Part of a processor. Off the Produce path a request stays with its channel until it is answered, so that it can be sent
again to the successor of a target that dies. Requests that wait, such as a Fetch without records, stay for minutes, so
their bytes are counted. A connection has `OWN_BYTES` to itself; what it keeps beyond them is taken from what its
processor has for all connections, and is at most ``pipeline.max.bytes``. A connection that keeps more, or asks for what
its processor has no room for, is read no further until enough of its own requests are answered, so nobody waits for
another's and each connection may always send one. What there is no room for is served all the same, but not kept: it
ends its connection should its target die.
"""

from __future__ import annotations

from collections.abc import Callable

from rotunda.broker.network.processor.channel import Channel
from rotunda.broker.network.processor.throttling.mute_state import MuteCause

#: Of each connection, whatever others keep: small requests are kept always, and counted with one addition.
OWN_BYTES = 8192

#: What is left of a request that is not kept: its api key. No request is as short as this.
REMNANT_BYTES = 2


class KeptRequests:
    """The bytes that the channels of one processor keep."""

    def __init__(
        self, connection_most_bytes: int, total_most_bytes: int, processors: Callable[[], int] = lambda: 1
    ) -> None:
        """``processors``: among how many ``total_most_bytes`` are divided."""
        self._connection_most_bytes = connection_most_bytes
        self._total_most_bytes = total_most_bytes
        self._processors = processors
        #: What channels keep beyond their `OWN_BYTES`, together.
        self.shared_bytes = 0
        #: Requests for which there was no room, ever.
        self.not_kept = 0

    def keep(self, channel: Channel, sequence: int, received_ns: int, target: int, frame: bytes | memoryview) -> None:
        """Keep a request that has just been sent, if there is room; mute its channel if it is to send no more."""
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
        """Drop a request that is answered; nothing happens if it is none of the kept."""
        request = channel.repeatable.pop(sequence, None)
        if request is not None:
            self._resize(channel, channel.kept_bytes - len(request[2]))

    def drop_all(self, channel: Channel) -> None:
        """Drop whatever a channel keeps."""
        channel.repeatable.clear()
        self._resize(channel, 0)

    def allows(self, channel: Channel) -> bool:
        """Return whether a channel that was muted for what it keeps may send again."""
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
    """Return whether a channel has the whole frame of a request, and not only the part that names its API."""
    return len(frame) > REMNANT_BYTES


def _shared(kept_bytes: int) -> int:
    return max(0, kept_bytes - OWN_BYTES)
