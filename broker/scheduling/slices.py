"""Slices: work that would hold a turn up, done a few milliseconds at a time, between which others are served.

Runs in handler processes and the controller. What may take long is a generator. It yields whenever it has worked for
about a millisecond at most; what it returns is the result. It may also yield a `Deferred`, and is then sent on with
what that was completed with. The loop gives all of them together `BUDGET_NS` of each turn.

- Works of one *lane* are done one after the other, so what one client asks for is done in the order in which it asked.
- Works rise through *levels* by the time that they have had, and the levels take turns. So what is short is done soon,
  however many long ones there are. Each holds what it has made so far, so few may be in the upper levels at a time.
- There are limits to how many may wait, and to the size of their requests.
- An *exclusive* work is under way alone among its kind: two changes of the metadata never see each other half done.
- A work that changes nothing ends when nobody waits for it any more: its client has gone.

A work lives in memory alone. When its process dies it is gone, and whoever asked for it asks again: processors send
every request but Produce to the replacement (`resender`), and targets ask again as well (`peer_rpc`).
Which request a slice belongs to that never ends, or that kills, stands in shared memory (`shm.tables.current_request`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass
from typing import Any, TypeAlias

from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.server_log.slow_turns import Doing, SlowTurns
from rotunda.shm.tables.current_request import NOBODY, CurrentRequest, Identity

logger = logging.getLogger(__name__)

#: What all works together get of one turn.
BUDGET_NS = 5_000_000

#: How many may be served or wait for that, and how many bytes their requests may have together, small ones apart.
MOST_WAITING = 1024
MOST_WAITING_BYTES = 64 << 20
_SMALL_BYTES = 64 << 10

#: Of each level, up to how much time works belong to it, and how many may be in it. A work has a place in the next one
#: before it goes on.
MOST_LONG = 8
_MOST_MIDDLING = 64
SHORT_NS = 1_000_000
_MIDDLING_NS = 10_000_000
_EVER_NS = 1 << 62

Work: TypeAlias = Generator[Deferred | None, Any, Any]


class TooManyWaitError(Exception):
    """So much waits to be begun that this cannot wait as well."""


@dataclass(slots=True, eq=False)
class SlicedWork:
    """One work: how it is done, whose it is, and the receiver of its result or its fault."""

    work: Work
    lane: Hashable
    done: Callable[[Any], None]
    failed: Callable[[], None]
    doing: Doing
    identity: Identity = NOBODY
    """The request that it belongs to."""
    exclusive: bool = False
    size: int = 0
    """Bytes of the request that it belongs to."""
    is_wanted: Callable[[], bool] | None = None
    """Whether somebody still waits for it; None where it is done in any case."""
    sent: Any = None
    """What the generator is to be sent next."""
    level: _Level | None = None
    """Where it is; None while it has not begun, and if it is done beside all others."""
    spent_ns: int = 0


class _Level:
    """Works that have had about the same time: those whose turn it may be, and those that wait for a place."""

    __slots__ = ("gate", "inside", "most", "next", "ready", "until_ns")

    def __init__(self, until_ns: int, most: int, following: _Level | None) -> None:
        self.until_ns = until_ns
        self.most = most
        self.next = following
        self.inside = 0
        self.ready: deque[SlicedWork] = deque()
        self.gate: deque[SlicedWork] = deque()

    def enter(self, work: SlicedWork) -> None:
        """Give a work a place, or let it wait for one."""
        work.level = self
        if self.inside < self.most:
            self.inside += 1
            self.ready.append(work)
        else:
            self.gate.append(work)

    def leave(self) -> None:
        """Give the place of a work that is not ready to the next one."""
        self.inside -= 1
        if self.gate and self.inside < self.most:
            self.inside += 1
            self.ready.append(self.gate.popleft())


class Slices:
    """The works of one target."""

    def __init__(self, now_ns: Callable[[], int], turns: SlowTurns, current: CurrentRequest) -> None:
        self._now_ns = now_ns
        self._current = current
        self._turns = turns
        #: By lane, the works that are not done; the first has begun unless it waits to be exclusive.
        self._lanes: dict[Hashable, deque[SlicedWork]] = {}
        long = _Level(_EVER_NS, MOST_LONG, None)
        middling = _Level(_MIDDLING_NS, _MOST_MIDDLING, long)
        self._short = _Level(SHORT_NS, MOST_WAITING, middling)
        #: Works that are done beside all others.
        self._beside: deque[SlicedWork] = deque()
        #: Works that wait for nothing but their turn, in groups that take turns.
        self._ready = (self._beside, self._short.ready, middling.ready, long.ready)
        self._turn_of = 0
        self._waiting = 0
        self._waiting_bytes = 0
        self._exclusive: SlicedWork | None = None
        self._to_be_exclusive: deque[SlicedWork] = deque()

    @property
    def waiting(self) -> int:
        """How many requests are served in slices, or wait for that."""
        return self._waiting

    def add(self, new: SlicedWork) -> None:
        """Let a work be done. Raises TooManyWaitError."""
        is_too_much = new.size > _SMALL_BYTES and self._waiting_bytes + new.size > MOST_WAITING_BYTES
        if self._waiting and (self._waiting >= MOST_WAITING or is_too_much):
            raise TooManyWaitError(f"{self._waiting} requests of {self._waiting_bytes} bytes wait already")
        self._waiting += 1
        self._waiting_bytes += new.size
        lane = self._lanes.get(new.lane)
        if lane is None:
            self._lanes[new.lane] = deque((new,))
            self._begin(new)
        else:
            lane.append(new)

    def add_now(self, new: SlicedWork) -> None:
        """Let a work be done beside all others, whatever waits: for what never waits for another work itself."""
        self._beside.append(new)

    def begin_own(self, work: Work) -> None:
        """Have something done that nobody waits for."""
        self.add_now(SlicedWork(work, "own", _nothing_more, _nothing_more, ("what readers get", "")))

    def has(self, lane: Hashable) -> bool:
        """Return whether a work of this lane is not done. HOT."""
        return lane in self._lanes

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do in this turn."""
        return not any(self._ready)

    def turn(self) -> bool:
        """Give the works their share of a turn; False when there was nothing to do."""
        end_ns = 0
        while not self.is_idle:
            now_ns = self._now_ns()
            end_ns = end_ns or now_ns + BUDGET_NS
            if now_ns >= end_ns:
                break
            work = self._next()
            if work.is_wanted is None or work.is_wanted():
                self._slice(work, end_ns)
            else:
                self._drop(work)
        self._current.leave()
        return end_ns != 0

    def _next(self) -> SlicedWork:
        """Return the work whose turn it is, of those that are ready."""
        while True:
            ready = self._ready[self._turn_of]
            self._turn_of = (self._turn_of + 1) % len(self._ready)
            if ready:
                return ready.popleft()

    def _slice(self, work: SlicedWork, end_ns: int) -> None:
        """Go on with a work until its share of the turn is used up, or it waits, or is done."""
        self._current.enter(work.identity)
        began_ns = self._now_ns()
        # The others have their shares too.
        end_ns = began_ns + (end_ns - began_ns) // (sum(map(len, self._ready)) + 1)
        if work.level is not None:
            end_ns = min(end_ns, began_ns + work.level.until_ns - work.spent_ns)
        try:
            while True:
                waits_for = work.work.send(work.sent)
                work.sent = None
                now_ns = self._now_ns()
                self._turns.spent(now_ns, work.doing)
                if waits_for is not None:
                    # Others may have its place meanwhile, or two targets could wait for each other's room.
                    self._leave(work)
                    waits_for.bind(lambda value: self._go_on(work, value))
                    return
                if now_ns >= end_ns:
                    work.spent_ns += now_ns - began_ns
                    self._put_back(work)
                    return
        except StopIteration as stop:
            self._end(work)
            self._give(work, stop.value)
        except Exception:
            logger.exception("%s failed; closing the connection that asked", work.doing[0])
            self._end(work)
            work.failed()

    def _give(self, work: SlicedWork, result: Any) -> None:
        try:
            work.done(result)
        except Exception:
            logger.exception("the answer to %s failed; closing the connection that asked", work.doing[0])
            work.failed()
        self._turns.spent(self._now_ns(), work.doing)

    def _drop(self, work: SlicedWork) -> None:
        """End a work that nobody waits for."""
        work.work.close()
        self._end(work)
        work.failed()

    def _put_back(self, work: SlicedWork) -> None:
        """Let a work wait for its next turn, in the next level if it has had its time in this one."""
        level = work.level
        if level is None:
            self._beside.append(work)
        elif level.next is not None and work.spent_ns >= level.until_ns:
            level.leave()
            level.next.enter(work)
        else:
            level.ready.append(work)

    def _leave(self, work: SlicedWork) -> None:
        if work.level is not None:
            work.level.leave()

    def _go_on(self, work: SlicedWork, value: Any) -> None:
        work.sent = value
        if work.level is None:
            self._beside.append(work)
        else:
            # It has had a place already, and may be one too many for a while.
            work.level.inside += 1
            work.level.ready.append(work)

    def _begin(self, work: SlicedWork) -> None:
        """Let the first work of a lane have its turns, unless it must be alone and is not."""
        if not work.exclusive:
            self._short.enter(work)
        elif self._exclusive is None:
            self._exclusive = work
            self._short.enter(work)
        else:
            self._to_be_exclusive.append(work)

    def _end(self, work: SlicedWork) -> None:
        """Make room for what waits behind a work."""
        self._leave(work)
        if work.level is None:
            return
        self._waiting -= 1
        self._waiting_bytes -= work.size
        if self._exclusive is work:
            self._exclusive = None
            if self._to_be_exclusive:
                self._begin(self._to_be_exclusive.popleft())
        lane = self._lanes[work.lane]
        lane.popleft()
        if lane:
            self._begin(lane[0])
        else:
            del self._lanes[work.lane]


def _nothing_more(_result: object = None) -> None:
    """Do nothing with what has been done."""
