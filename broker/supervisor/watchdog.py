"""The watchdog: detects processes with a stalled loop, and kills those silent for too long.

Runs in the supervisor, which replaces a killed process like any dead one: only after it has ended, so that it can never
write to memory that belongs to its replacement. Every ready child publishes the time of its loop's last iteration, at
least once a second. Silence is summed check by check: time in which the supervisor itself, or the whole machine, was
stalled does not count. Neither does time that a process waits uninterruptibly in the kernel, mostly for a disk: killing
it would not end it any earlier. Of time that it waits for a CPU only a quarter counts: on an overloaded machine a
replacement would not run either.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rotunda.broker.runtime.stack_dumps import is_beyond_signals, kernel_state, run_ns_if_runnable
from rotunda.shm.tables.process_slots import SILENT_NS, ProcessSlots

if TYPE_CHECKING:
    from rotunda.broker.supervisor.child import Child

_log = logging.getLogger(__name__)

#: The supervisor checks the children this often. Their loops run at least as often.
LOOK_MS = 1000

#: At most this much counts between two checks: beyond it the supervisor was stalled as well.
MOST_COUNTED_NS = 2 * LOOK_MS * 1_000_000

#: A process waiting for a CPU gets this many times as long as others: an endless loop ends on any machine.
_CROWDED = 4

NEVER = -1


@dataclass(slots=True)
class Silence:
    """The silence of a process: its length, and the part of it that counts for the timeout."""

    generation: int
    heartbeat_ns: int
    silent_ns: int = 0
    blamed_ns: int = 0
    run_ns: int | None = None
    """CPU time at the last observation of running or waiting for a CPU."""
    is_reported: bool = False
    is_killed: bool = False


class Watchdog:
    """Checks the children of one supervisor. ``report`` is called once for a hanging child, to log its stacks."""

    def __init__(self, slots: ProcessSlots, hang_timeout_ms: int, report: Callable[[Child], None]) -> None:
        self._slots = slots
        self._timeout_ms = hang_timeout_ms
        self._report = report
        self._looked_ns = 0
        self._silences: dict[Child, Silence] = {}

    def look(self, children: Iterable[Child], now_ns: int) -> None:
        """Check every ready child; kill those silent for `process.hang.timeout.ms`."""
        passed_ns = min(now_ns - self._looked_ns, MOST_COUNTED_NS) if self._looked_ns else 0
        self._looked_ns = now_ns
        for child in children:
            if child.is_alive and child.ready:
                self._look_at(child, passed_ns)
            else:
                self._silences.pop(child, None)

    def _look_at(self, child: Child, passed_ns: int) -> None:
        heartbeat_ns = self._slots.heartbeat_ns(child.role, child.index)
        silence = self._silences.get(child)
        if silence is None or (silence.generation, silence.heartbeat_ns) != (child.generation, heartbeat_ns):
            if silence is not None and silence.is_reported and silence.generation == child.generation:
                _log.info("%s continues after %d s", child.label, silence.silent_ns // 1_000_000_000)
            self._silences[child] = Silence(child.generation, heartbeat_ns)
            return
        silence.silent_ns += passed_ns
        silence.blamed_ns += _to_blame(silence, child.pid, passed_ns)
        if silence.silent_ns < SILENT_NS or silence.is_killed:
            return
        if not silence.is_reported:
            silence.is_reported = True
            silent_s = silence.silent_ns // 1_000_000_000
            _log.warning("%s has been hanging for %d s: %s", named(child), silent_s, kernel_state(child.pid))
            self._report(child)
        if self._timeout_ms != NEVER and silence.blamed_ns >= self._timeout_ms * 1_000_000:
            silence.is_killed = True
            hangs = "%s has been hanging for %d s, killing it (process.hang.timeout.ms): %s"
            known = kernel_state(child.pid)
            _log.error(hangs, named(child), silence.silent_ns // 1_000_000_000, known)
            child.kill()


def _to_blame(silence: Silence, pid: int, passed_ns: int) -> int:
    """Return the part of the passed time that counts for the timeout."""
    if silence.silent_ns < SILENT_NS:
        return passed_ns
    before_ns, silence.run_ns = silence.run_ns, run_ns_if_runnable(pid)
    if before_ns is not None and silence.run_ns is not None:
        return max(passed_ns // _CROWDED, min(passed_ns, silence.run_ns - before_ns))
    return 0 if is_beyond_signals(pid) else passed_ns


def named(child: Child) -> str:
    """Return the name of a living child in log lines."""
    return f"{child.label} (pid {child.pid})"
