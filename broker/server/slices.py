"""Slices: work that would hold a turn up, done a few milliseconds at a time, between which others are served.

Runs in handler processes and the controller. What may take long is a generator. It yields whenever it has worked for
about a millisecond at most; what it returns is the result. It may also yield a `Deferred`, and is then sent on with
what that was completed with. The loop gives all of them together `BUDGET_NS` of each turn.

- Works of one *lane* are done one after the other, so what one client asks for is done in the order in which it asked.
- Lanes take turns, so nobody who asks for much keeps others from their answers.
- Only `MOST_BEGUN` are under way at a time: each holds what it has made so far. What has not begun holds its decoded
  request; there are limits to how many may wait, and to their size.
- An *exclusive* work is under way alone among its kind: two changes of the metadata never see each other half done.

A work lives in memory alone. When its process dies it is gone, and whoever asked for it asks again: processors send
every request but Produce to the replacement (`network/repeats.py`), and targets ask again as well (`peer_desk.py`).
Which request a slice belongs to that never ends, or that kills, stands in shared memory (`shm.current_request`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass
from typing import Any, TypeAlias

from broker.server.deferred import Deferred
from broker.slow_turns import Doing, SlowTurns
from shm.current_request import NOBODY, CurrentRequest, Identity

logger = logging.getLogger(__name__)

#: What all works together get of one turn.
BUDGET_NS = 5_000_000

#: How many are under way at a time.
MOST_BEGUN = 8

#: How many may wait for that, and how many bytes their requests may have together.
MOST_WAITING = 1024
MOST_WAITING_BYTES = 64 << 20

Work: TypeAlias = Generator[Deferred | None, Any, Any]


class TooManyWaitError(Exception):
    """So much waits to be begun that this cannot wait as well."""


@dataclass(slots=True, eq=False)
class SlicedWork:
    """One work: how it is done, whose it is, and who is given its result or told of its fault."""

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
    sent: Any = None
    """What the generator is to be sent next."""
    is_begun: bool = False


class Slices:
    """The works of one target."""

    def __init__(self, now_ns: Callable[[], int], turns: SlowTurns, current: CurrentRequest) -> None:
        self._now_ns = now_ns
        self._current = current
        self._turns = turns
        #: By lane, the works that are not done; the first may be under way.
        self._lanes: dict[Hashable, deque[SlicedWork]] = {}
        #: Lanes whose first work has not begun, in the order in which they will.
        self._next: deque[Hashable] = deque()
        #: Works that are under way and wait for nothing but their turn.
        self._ready: deque[SlicedWork] = deque()
        self._begun = 0
        self._waiting = 0
        self._waiting_bytes = 0
        self._exclusive: SlicedWork | None = None

    @property
    def waiting(self) -> int:
        """How many works have not begun."""
        return self._waiting

    def add(self, new: SlicedWork) -> None:
        """Let a work be done. Raises TooManyWaitError."""
        if self._waiting and (self._waiting >= MOST_WAITING or self._waiting_bytes + new.size > MOST_WAITING_BYTES):
            raise TooManyWaitError(f"{self._waiting} requests of {self._waiting_bytes} bytes wait already")
        self._waiting += 1
        self._waiting_bytes += new.size
        lane = self._lanes.get(new.lane)
        if lane is None:
            self._lanes[new.lane] = deque((new,))
            self._next.append(new.lane)
        else:
            lane.append(new)

    def add_now(self, new: SlicedWork) -> None:
        """Let a work be done beside all others, whatever waits: for what never waits for another work itself."""
        self._ready.append(new)

    def has(self, lane: Hashable) -> bool:
        """Return whether a work of this lane is not done. HOT."""
        return lane in self._lanes

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do in this turn."""
        return not self._ready and not self._can_begin()

    def turn(self) -> bool:
        """Give the works their share of a turn; False when there was nothing to do."""
        end_ns = 0
        while self._begin_next() or self._ready:
            now_ns = self._now_ns()
            end_ns = end_ns or now_ns + BUDGET_NS
            if now_ns >= end_ns:
                break
            self._slice(self._ready.popleft(), end_ns)
        self._current.leave()
        return end_ns != 0

    def _slice(self, work: SlicedWork, end_ns: int) -> None:
        """Go on with a work until its share of the turn is used up, or it waits, or is done."""
        self._current.enter(work.identity)
        now_ns = self._now_ns()
        # The others under way have their shares too.
        end_ns = now_ns + (end_ns - now_ns) // (len(self._ready) + 1)
        try:
            while True:
                waits_for = work.work.send(work.sent)
                work.sent = None
                now_ns = self._now_ns()
                self._turns.spent(now_ns, work.doing)
                if waits_for is not None:
                    # Others may begin meanwhile, or two targets could wait for each other's room.
                    self._begun -= work.is_begun
                    waits_for.bind(lambda value: self._go_on(work, value))
                    return
                if now_ns >= end_ns:
                    self._ready.append(work)
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

    def _go_on(self, work: SlicedWork, value: Any) -> None:
        work.sent = value
        self._begun += work.is_begun
        self._ready.append(work)

    def _can_begin(self) -> bool:
        return bool(self._next) and self._begun < MOST_BEGUN and any(map(self._may_begin, self._next))

    def _may_begin(self, lane: Hashable) -> bool:
        return self._exclusive is None or not self._lanes[lane][0].exclusive

    def _begin_next(self) -> bool:
        """Begin the next work if one more may be under way; False if not."""
        if self._begun >= MOST_BEGUN:
            return False
        for number, lane in enumerate(self._next):
            if self._may_begin(lane):
                del self._next[number]
                break
        else:
            return False
        work = self._lanes[lane][0]
        work.is_begun = True
        self._begun += 1
        self._waiting -= 1
        self._waiting_bytes -= work.size
        if work.exclusive:
            self._exclusive = work
        self._ready.append(work)
        return True

    def _end(self, work: SlicedWork) -> None:
        """Make room for what waits behind a work."""
        if not work.is_begun:
            return
        self._begun -= 1
        if self._exclusive is work:
            self._exclusive = None
        lane = self._lanes[work.lane]
        lane.popleft()
        if lane:
            self._next.append(work.lane)
        else:
            del self._lanes[work.lane]
