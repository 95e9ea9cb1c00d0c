"""Requests that are sent again because the target that had them has been replaced, or its answer could not be sent.

Part of a processor. Off the Produce path a request stays with its channel until it is answered, so a target that dies
drops no connection: what it owed is put to its replacement. That a request reaches a target twice this way is the
target's business; a second answer is ignored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from broker.network.processor.channel import Channel
from broker.network.processor.kept_requests import is_kept
from broker.network.processor.request_reader import RequestReader

#: Why a connection ends whose request cannot be sent again.
NOT_KEPT = "who had its request died, and there was no room to keep a copy for another (pipeline.max.total.bytes)"


class Resender:
    """What is to be sent again and has not found room yet, oldest first."""

    def __init__(
        self, reader: RequestReader, open_channels: Mapping[int, Channel], waiting: deque[tuple[Channel, int]]
    ) -> None:
        """Send what is in ``waiting``, as (channel, sequence): others put in what has an answer that cannot be sent."""
        self._reader = reader
        self._open = open_channels
        self._waiting = waiting

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, channels: Iterable[Channel], target: int, generation: int) -> list[Channel]:
        """Send to this generation of a target from now on, and again what these channels have in flight to another.

        Returns the channels that wait for an answer which cannot come any more: their request was not kept.

        What goes out before bears the other's number, so that no generation takes anything twice. The first one takes
        everything: a processor may send to it before it knows that it is there.
        """
        self._reader.sender.generations[target] = generation
        if generation == 1:
            return []
        waiting = set(self._waiting)
        without: dict[int, Channel] = {}
        for channel in channels:
            for sequence, (_, owner, frame) in channel.repeatable.items():
                if owner != target:
                    continue
                if not is_kept(frame):
                    if sequence not in channel.held:
                        without[channel.fd] = channel
                elif (channel, sequence) not in waiting:
                    self._waiting.append((channel, sequence))
        return list(without.values())

    def send(self) -> None:
        """Send what there is room for."""
        waiting = self._waiting
        while waiting:
            channel, sequence = waiting[0]
            if channel.connection_id in self._open and not self._reader.try_repeat(channel, sequence):
                return
            waiting.popleft()
