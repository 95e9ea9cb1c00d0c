"""SIGKILL and SIGSTOP of every role: processes die, or are stopped until they are continued or replaced."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter, deque

from ops.broker import ROLES, is_alive, send
from ops.reliability.attacks import Battlefield

KILL, STOP = "SIGKILL", "SIGSTOP"
LONGEST_SHORT_STOP_SECONDS = 1.5
#: A stopped process that has not been replaced by now is continued.
LONGEST_STOP_SECONDS = 20.0
LOOK_SECONDS = 0.02
#: A role rests for this many kills of others, so that a replacement has some load before it dies again.
REST_TURNS = 4


class Killing:
    """SIGKILL of each role, `wanted` times each (None: without end), in rounds of random order."""

    def __init__(self, wanted: int | None) -> None:
        self._wanted = wanted
        self._kills: Counter[str] = Counter()
        self._resting: deque[str] = deque(maxlen=REST_TURNS)

    def __call__(self, field: Battlefield, chance: random.Random) -> bool:
        """Kill one process; return whether more are to be killed."""
        role = self._draw(chance)
        if role is None:
            return False
        living = field.broker.processes()
        if living[role]:
            pid = chance.choice(living[role])
            with field.journal.window(KILL, pid=pid, role=role):
                if not send(pid, signal.SIGKILL):
                    raise ProcessLookupError(f"{role} {pid} was gone")
            self._kills[role] += 1
        return True

    def _draw(self, chance: random.Random) -> str | None:
        """Return the next role: one of the least killed ones, except for those that rest."""
        left = [role for role in ROLES if self._wanted is None or self._kills[role] < self._wanted]
        ready = [role for role in left if role not in self._resting] or left
        if not ready:
            return None
        least = min(self._kills[role] for role in ready)
        role = chance.choice([role for role in ready if self._kills[role] == least])
        self._resting.append(role)
        return role


def stop(field: Battlefield, chance: random.Random) -> None:
    """SIGSTOP one process, and wait until it continues, or until the watchdog has replaced it."""
    living = field.broker.processes()
    role = chance.choice(ROLES)
    seconds = chance.uniform(0.05, LONGEST_SHORT_STOP_SECONDS)
    is_left = chance.random() < 1 / 3
    if not living[role]:
        return
    pid = chance.choice(living[role])
    with field.journal.window(STOP, pid=pid, role=role) as window:
        if not send(pid, signal.SIGSTOP):
            raise ProcessLookupError(f"{role} {pid} was gone")
        end = time.monotonic() + (LONGEST_STOP_SECONDS if is_left else seconds)
        while time.monotonic() < end and is_alive(pid) and not field.ended.is_set():
            time.sleep(LOOK_SECONDS)
        window.detail = "woken" if is_alive(pid) else "replaced"
        send(pid, signal.SIGCONT)
    field.journal.counts[f"{STOP} {window.detail}"] += 1
