"""Writes requests into the request rings, and manages the memory of large ones.

Runs in processor processes; knows the routing key of a request, not its body. It owns the producing ends of the
processor's request rings and the processor's part of the arena. Small requests are copied into the ring; larger ones
were received directly into a block of the arena (or, if larger than the arena can ever hold, into the spill area), and
the ring carries the block's address. A block is free again when the target has *released* the frame that names it: a
response alone does not free it, because a replacement of the target may still have to read the request again.
"""

from __future__ import annotations

import mmap
import os
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from rotunda.broker.ipc.request_channel import ARENA, INLINE, REQUEST, SPILL, RequestChannel
from rotunda.broker.protocol.routing import CoordinatorPartitions, route
from rotunda.shm.rings.arena import ArenaAllocator
from rotunda.shm.rings.bell import SemaphoreBell
from rotunda.shm.rings.ring import RingProducer

_ENVELOPE_BYTES = REQUEST.size
_pack_into = REQUEST.pack_into


class Block(NamedTuple):
    """The memory of one large request; ``area`` is ARENA, or SPILL + the processor's index."""

    area: int
    address: int
    view: memoryview


class MemoryPool:
    """The processor's share of the arena, and its spill area for the one request that is too large for it."""

    def __init__(self, arena: memoryview, base: int, size: int, spill_fd: int, spill_area: int) -> None:
        self._arena = arena
        self._base = base
        self._allocator = ArenaAllocator(size)
        #: Requests larger than this use the spill area.
        self.size = size
        self._spill_fd = spill_fd
        self._spill_area = spill_area
        self._spill: mmap.mmap | None = None
        self._spill_busy = False

    @property
    def used_bytes(self) -> int:
        """Bytes of the arena that requests occupy."""
        return self.size - self._allocator.free_bytes

    @property
    def free_bytes(self) -> int:
        """Free bytes of the arena, not always contiguous."""
        return self._allocator.free_bytes

    def allocate(self, size: int) -> Block | None:
        """Return a block for a request of ``size`` bytes, or None if there is no room now."""
        if size > self.size:
            return self._allocate_spill(size)
        offset = self._allocator.allocate(size)
        if offset < 0:
            return None
        address = self._base + offset
        return Block(ARENA, address, self._arena[address : address + size])

    def free(self, area: int, address: int) -> None:
        """Free a block."""
        if area == ARENA:
            self._allocator.free(address - self._base)
            return
        # Truncating frees the pages; the area's size is restored for the next request.
        size = os.fstat(self._spill_fd).st_size
        os.ftruncate(self._spill_fd, 0)
        os.ftruncate(self._spill_fd, size)
        self._spill_busy = False

    def _allocate_spill(self, size: int) -> Block | None:
        if self._spill_busy:
            return None
        if self._spill is None:
            self._spill = mmap.mmap(self._spill_fd, 0)
        self._spill_busy = True
        return Block(self._spill_area, 0, memoryview(self._spill)[:size])


class RequestSender:
    """Writes requests into the rings of their targets, and records which frame uses which block."""

    def __init__(
        self,
        channel: RequestChannel,
        processor: int,
        bells: tuple[SemaphoreBell, ...],
        pool: MemoryPool,
        coordinators: CoordinatorPartitions = CoordinatorPartitions(),  # noqa: B008 - an immutable value
        handlers: int = 0,
    ) -> None:
        """Without a number of ``handlers`` the maximum number is used."""
        targets = channel.shape.targets
        self.controller = targets - 1
        self.handlers = handlers or self.controller
        self._channel, self._processor = channel, processor
        self.pool = pool
        #: By target, the generation that requests are sent to: a successor skips requests with another generation.
        self.generations = [0] * targets
        self._followed: set[int] = set()
        self._coordinators = coordinators
        self._view = channel.view
        self._bells = bells
        self._producers: dict[int, RingProducer] = {}
        self._claims: list[Callable[[int], int]] = []
        #: By target, its ring; None: no request may be sent to it now.
        self.rings: list[RingProducer | None] = []
        self.release(self.handlers)
        self._blocks: list[deque[tuple[int, int, int]]] = [deque() for _ in range(targets)]
        #: The targets with written and unpublished requests.
        self.touched: set[int] = set()
        # Blocks of a predecessor's requests are unknown here, so nothing may be written to the arena before the targets
        # have released every frame that it had published.
        self._inherited = [(p, p.position) for p in self._producers.values() if p.consumed() < p.position]

    def target_of(self, frame: bytes | memoryview, api_key: int, api_version: int, connection_id: int) -> int:
        """Return the target that owns the request's routing key. Raises InvalidReceive for a malformed one."""
        target = route(frame, api_key, api_version, connection_id, self.handlers, self._coordinators)
        return target if target < self.handlers else self.controller

    def follow(self, target: int, generation: int) -> None:
        """Send to this generation of a target from now on."""
        self.generations[target] = generation
        self._followed.add(target)

    def confirm(self) -> None:
        """Publish the generations that are followed: all requests to their predecessors have been sent again."""
        if self._followed:
            self.publish()
            for target in self._followed:
                self._channel.follow(self._processor, target, self.generations[target])
            self._followed.clear()

    def hold(self) -> None:
        """Publish the written requests, and accept no more until `release`."""
        self.publish()
        self._claims = [_no_room] * len(self._blocks)
        self.rings[:] = [None] * len(self._blocks)

    def release(self, handlers: int) -> None:
        """Accept requests again, for this number of handlers and the controller."""
        self.handlers = handlers
        for target in self._channel.targets:
            if target not in self._producers:
                self._producers[target] = self._channel.request_producer(self._processor, target)
        producers = self._producers
        self.rings[:] = [producers.get(target) for target in range(self.controller + 1)]
        self._claims = [_no_room if ring is None else ring.claim for ring in self.rings]

    def try_send(
        self,
        target: int,
        envelope: tuple[int, int, int, int, int, int, int],
        listener: int,
        frame: bytes,
        session: bytes = b"",
    ) -> bool:
        """Copy a small request into the target's ring; return False if the ring is full.

        ``envelope`` is (connection id, sequence, received_ns, api key, version, correlation id, size in bytes).
        """
        connection, sequence, received_ns, api_key, api_version, correlation_id, size = envelope
        session_bytes = 0
        if session:
            # One copy into the ring is faster than two.
            session_bytes = len(session)
            frame += session
        end = _ENVELOPE_BYTES + size + session_bytes
        at = self._claims[target](end)
        if at < 0:
            return False
        view = self._view
        _pack_into(
            view, at, connection, sequence, received_ns, api_key, api_version, correlation_id, size, session_bytes,
            -1, listener, INLINE, self.generations[target], 0,
        )  # fmt: skip
        view[at + _ENVELOPE_BYTES : at + end] = frame
        self.touched.add(target)
        return True

    def try_send_block(
        self,
        target: int,
        envelope: tuple[int, int, int, int, int, int, int],
        listener: int,
        place: tuple[int, int],
        session: bytes = b"",
    ) -> bool:
        """Send a large request by its (area, address); return False if the ring is full."""
        session_bytes = len(session)
        at = self._claims[target](_ENVELOPE_BYTES + session_bytes)
        if at < 0:
            return False
        area, address = place
        generation = self.generations[target]
        REQUEST.pack_into(self._view, at, *envelope, session_bytes, address, listener, area, generation, 0)
        at += _ENVELOPE_BYTES
        self._view[at : at + session_bytes] = session
        self._blocks[target].append((self._producers[target].position, area, address))
        self.touched.add(target)
        return True

    def publish(self) -> None:
        """Publish all requests sent since the last call, then wake their targets: one bell per batch."""
        if not self.touched:
            return
        for target in self.touched:
            self._producers[target].publish()
            self._bells[target].ring()
        self.touched.clear()

    def allocate(self, size: int) -> Block | None:
        """Return a block for a large request, or None if the pool has no room now."""
        if self._inherited:
            self._inherited = [(p, end) for p, end in self._inherited if p.consumed() < end]
            if self._inherited:
                return None
        block = self.pool.allocate(size)
        if block is None and self.reclaim():
            block = self.pool.allocate(size)
        return block

    def reclaim(self) -> bool:
        """Free the blocks of released frames (``B16``); return whether there were any."""
        freed = False
        for target, producer in self._producers.items():
            blocks = self._blocks[target]
            if not blocks:
                continue
            head = producer.consumed()
            while blocks and blocks[0][0] <= head:
                _, area, address = blocks.popleft()
                self.pool.free(area, address)
                freed = True
        return freed


def _no_room(n_bytes: int) -> int:  # noqa: ARG001 - what a ring is asked
    """Return the result of a full ring."""
    return -1


def spill_area(processor: int) -> int:
    """Return the area number of this processor's spill memory."""
    return SPILL + processor
