"""Resends requests after their target was replaced, or their response could not be sent.

Part of a processor. Except Produce, a request stays with its channel until its response, and is resent to the
replacement of a dead target; only connections with a request that could not be copied are closed (`kept_requests`).
Targets handle duplicates of a request; a second response is ignored.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Mapping

from rotunda.broker.network.processor.channel import Channel
from rotunda.broker.network.processor.kept_requests import is_kept
from rotunda.broker.network.processor.request_reader import RequestReader
from rotunda.broker.server_log.log_setup import RepeatedWarnings

_KEY_AND_VERSION = struct.Struct(">hh")

#: The reason for closing a connection with a request that cannot be resent.
NOT_KEPT = "its target died, and there was no copy of its request (pipeline.max.total.bytes)"


class Resender:
    """Requests to resend that have not found room yet, oldest first."""

    def __init__(
        self,
        reader: RequestReader,
        open_channels: Mapping[int, Channel],
        waiting: deque[tuple[Channel, int]],
        warnings: RepeatedWarnings,
        ended: list[tuple[Channel, str]],
    ) -> None:
        """Resend the (channel, sequence) entries of ``waiting``; other modules add requests with unsendable responses.

        Channels that wait for a lost response, because their request was not copied, are added to ``ended``.
        """
        self._reader = reader
        self._open = open_channels
        self._waiting = waiting
        self._warnings = warnings
        self._ended = ended

    def add(self, channels: Iterable[Channel], target: int, generation: int) -> None:
        """Send to this generation of a target from now on, and resend the requests in flight to its predecessors.

        Earlier requests have another generation number, so that no generation handles a request twice. The first one
        accepts all: a processor may send to it before it sees it as ready.
        """
        self._reader.sender.follow(target, generation)
        if generation == 1:
            return
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
        self._end(without.values())

    def move(self, channels: Iterable[Channel], generations: Mapping[int, int]) -> None:
        """Send to these target generations, if any, from now on; resend unanswered requests to their new owners.

        All published responses have been received, and no Produce is unanswered (`E04`).
        """
        sender = self._reader.sender
        without: dict[int, Channel] = {}
        if generations:
            self._waiting.clear()
        for target, generation in generations.items():
            sender.follow(target, generation)
        for channel in channels if generations else ():
            channel.produce_target = -1
            for sequence, (received_ns, _, frame) in list(channel.repeatable.items()):
                if sequence in channel.held:
                    continue
                if not is_kept(frame):
                    without[channel.fd] = channel
                    continue
                key, version = _KEY_AND_VERSION.unpack_from(frame)
                owner = sender.target_of(frame, key, version, channel.connection_id)
                channel.repeatable[sequence] = (received_ns, owner, frame)
                self._waiting.append((channel, sequence))
        self._end(without.values())

    def _end(self, without: Iterable[Channel]) -> None:
        for channel in without:
            self._warnings.warning("not kept", "closing connection %s: %s", channel.name, NOT_KEPT)
            self._ended.append((channel, "not_kept"))
        self.send()
        self._reader.sender.publish()

    def send(self) -> None:
        """Resend requests as far as there is room."""
        waiting = self._waiting
        while waiting:
            channel, sequence = waiting[0]
            if channel.connection_id in self._open and not self._reader.try_repeat(channel, sequence):
                return
            waiting.popleft()
        self._reader.sender.confirm()
