"""SIGKILL and SIGSTOP of every role: processes die, or stand still until they are woken or given up."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter

from ops.reliability.attacks import Battlefield
from ops.reliability.broker import ROLES, is_alive, send

KILL, STOP = "SIGKILL", "SIGSTOP"
LONGEST_SHORT_STOP_SECONDS = 1.5
#: A stopped process that nobody has replaced by now is woken.
LONGEST_STOP_SECONDS = 20.0
LOOK_SECONDS = 0.02


class Killing:
    """SIGKILL of each role, `wanted` times each (None: without end), in an order of chance."""

    def __init__(self, field: Battlefield, chance: random.Random, wanted: int | None) -> None:
        self._field, self._chance, self._wanted = field, chance, wanted
        self._kills: Counter[str] = Counter()

    def __call__(self) -> bool:
        """Kill one process; return whether there is more to do."""
        roles = [role for role in ROLES if self._wanted is None or self._kills[role] < self._wanted]
        if not roles:
            return False
        living = self._field.broker.processes()
        role = self._chance.choice(roles)
        if living[role]:
            pid = self._chance.choice(living[role])
            with self._field.journal.window(KILL, pid=pid, role=role):
                if not send(pid, signal.SIGKILL):
                    raise ProcessLookupError(f"{role} {pid} was gone")
            self._kills[role] += 1
        return True


class Stopping:
    """SIGSTOP of one process: for a moment, or until the watchdog replaces it."""

    def __init__(self, field: Battlefield, chance: random.Random) -> None:
        self._field, self._chance = field, chance

    def __call__(self) -> None:
        """Stop one process and wait until it goes on, or another has its place."""
        living = self._field.broker.processes()
        role = self._chance.choice(ROLES)
        seconds = self._chance.uniform(0.05, LONGEST_SHORT_STOP_SECONDS)
        is_left = self._chance.random() < 1 / 3
        if not living[role]:
            return
        pid = self._chance.choice(living[role])
        with self._field.journal.window(STOP, pid=pid, role=role) as window:
            if not send(pid, signal.SIGSTOP):
                raise ProcessLookupError(f"{role} {pid} was gone")
            end = time.monotonic() + (LONGEST_STOP_SECONDS if is_left else seconds)
            while time.monotonic() < end and is_alive(pid) and not self._field.ended.is_set():
                time.sleep(LOOK_SECONDS)
            window.detail = "woken" if is_alive(pid) else "replaced"
            send(pid, signal.SIGCONT)
        self._field.journal.counts[f"{STOP} {window.detail}"] += 1
