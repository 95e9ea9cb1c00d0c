"""The memory of groups: the memory used by the groups of one handler, and its limit.

Runs in handler processes. Additional memory of a request is counted when it arrives; freed memory is detected by a
periodic recount of all groups, in slices, so that departing members and expired offsets need no accounting. The sum is
therefore never too low, and too high for some seconds at most. A share group's records in flight count in the handler
that owns its state.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from rotunda.broker.server_log.log_setup import RepeatedWarnings

if TYPE_CHECKING:
    from rotunda.broker.coordinator.group import JoinRequest
    from rotunda.broker.coordinator.group_shard import GroupShard
    from rotunda.broker.scheduling.timers import Timers

logger = logging.getLogger(__name__)

#: Memory of the Python objects, without their texts.
GROUP_BYTES: Final = 2000
MEMBER_BYTES: Final = 1500
TEXT_BYTES: Final = 60

#: Members, topics and groups counted per slice, and the pause between slices.
SLICE: Final = 2000
SLICE_PAUSE_MS: Final = 5

#: Interval of the recount; once a second when additions since the last one exceed this share of the limit.
COUNT_MS: Final = 30_000
SOON_MS: Final = 1000
SOON_SHARE: Final = 16


#: (name, metadata) of each.
Protocols = Sequence[tuple[str, bytes]]


class GroupMemory:
    """The memory account of one handler's groups."""

    def __init__(self, limit_bytes: Callable[[], int], sizes: Callable[[], Iterator[int]], timers: Timers) -> None:
        """Use ``sizes()`` for the sizes of all parts."""
        self._limit_bytes = limit_bytes
        self._sizes = sizes
        self._timers = timers
        self._warnings = RepeatedWarnings(logger, timers.now_ns)
        self._counted_bytes = 0
        self._added_bytes = 0
        self._counting: Iterator[int] | None = None
        #: During a recount: the sum so far, and the additions from before it started.
        self._sum_bytes = 0
        self._added_before_bytes = 0
        self._next_count_ns = 0
        self._is_waiting = False
        #: Requests rejected because the limit was reached.
        self.rejections = 0

    @property
    def used_bytes(self) -> int:
        return self._counted_bytes + self._added_bytes

    def admit(self, group_id: str, more_bytes: int) -> bool:
        """Return whether a group may use this much more memory, and count it if so."""
        limit_bytes = self._limit_bytes()
        fits = self.used_bytes + more_bytes <= limit_bytes
        if fits:
            self._added_bytes += more_bytes
        else:
            self.rejections += 1
            self._warnings.warning(
                "full",
                "group %s: rejected %d bytes, groups use %d of %d, this handler's share of group.state.max.bytes",
                group_id[:255],
                more_bytes,
                self.used_bytes,
                limit_bytes,
            )
        if not fits or self._added_bytes > limit_bytes // SOON_SHARE:
            self.count_soon(SOON_MS)
        elif not self._is_waiting:
            self.count_soon(COUNT_MS)
        return fits

    def add(self, more_bytes: int) -> None:
        """Count a change of the memory in use; it may be negative."""
        self._added_bytes += more_bytes

    def count_soon(self, within_ms: int = 0) -> None:
        """Schedule a recount within this time, unless one is in progress."""
        due_ns = self._timers.now_ns() + within_ms * 1_000_000
        if self._counting is None and not (self._is_waiting and self._next_count_ns <= due_ns):
            self._is_waiting, self._next_count_ns = True, due_ns
            self._timers.at_ns(due_ns, self._begin)

    def _begin(self) -> None:
        if self._counting is None and self._is_waiting and self._timers.now_ns() >= self._next_count_ns:
            self._is_waiting = False
            self._counting = self._sizes()
            self._sum_bytes = 0
            self._added_before_bytes = self._added_bytes
            self._count_some()

    def _count_some(self) -> None:
        assert self._counting is not None  # noqa: S101 - it was begun
        part = list(islice(self._counting, SLICE))
        self._sum_bytes += sum(part)
        if len(part) == SLICE:
            self._timers.after_ms(SLICE_PAUSE_MS, self._count_some)
            return
        self._counting = None
        self._counted_bytes = self._sum_bytes
        self._added_bytes -= self._added_before_bytes
        if self.used_bytes:
            self.count_soon(COUNT_MS)


def join_bytes(request: JoinRequest, known: Protocols | None) -> int:
    """Return the memory that a JoinGroup adds; ``known``: the previous protocols of a member that rejoins."""
    new_bytes = protocols_bytes(request.protocols)
    if known is not None:
        return max(0, new_bytes - protocols_bytes(known))
    return MEMBER_BYTES + new_bytes + 2 * len(request.client_id) + 2 * len(request.instance_id or "")


def protocols_bytes(protocols: Protocols) -> int:
    """Return the size of the protocols of a member of a classic group."""
    return sum([2 * TEXT_BYTES + len(name) + len(metadata) for name, metadata in protocols])


def shard_sizes(shards: Iterable[GroupShard]) -> Iterator[int]:
    """Yield the sizes of all parts. Parts added or removed meanwhile may be missed."""
    for shard in list(shards):
        for group in list(shard.groups.values()):
            yield GROUP_BYTES + 2 * len(group.group_id)
            yield from group.sizes()
        yield from shard.offsets.sizes()


def texts_bytes(texts: Iterable[str]) -> int:
    return sum([TEXT_BYTES + len(text) for text in texts])
