"""Attacks: faults injected into the broker repeatedly, each in a thread of its own at random times.

An attack is a function of the battlefield and a source of chance that does one thing and notes it in the journal.
Attacks that need the whole broker, such as a restart, hold the battlefield exclusively; the others share it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ops.broker import Broker
from ops.reliability.chance import source
from ops.reliability.disk import Disk
from ops.reliability.journal import Journal


class Battlefield:
    """The broker, its disk, the journal, and a lock: any number of attacks at once, or one alone.

    `broker_has_changed` is to be called after a restart.
    """

    def __init__(self, broker: Broker, disk: Disk, journal: Journal, broker_has_changed: Callable[[], None]) -> None:
        self.broker, self.disk, self.journal = broker, disk, journal
        self.broker_has_changed = broker_has_changed
        self.ended = threading.Event()
        self.failures: list[str] = []
        self._changed = threading.Condition()
        self._sharing = 0
        self._is_taken = False

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Hold the battlefield together with other attacks."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_taken)
            self._sharing += 1
        try:
            yield
        finally:
            with self._changed:
                self._sharing -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the battlefield exclusively: wait for the others to end, and block new ones."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_taken)
            self._is_taken = True
            self._changed.wait_for(lambda: not self._sharing)
        try:
            yield
        finally:
            with self._changed:
                self._is_taken = False
                self._changed.notify_all()


#: Returns False when it has done all that was ordered.
Act = Callable[[Battlefield, random.Random], bool | None]


@dataclass(frozen=True)
class Attack:
    """One action, every `mean_seconds` on average, with its own sources of chance.

    An even attack waits for half to one and a half times its mean; the others are independent events (Poisson), with
    bursts.
    """

    name: str
    mean_seconds: float
    act: Act
    seed: int
    is_alone: bool = False
    is_even: bool = False

    def run(self, field: Battlefield) -> None:
        """Repeat the action until the campaign has ended. An exception marks the campaign as incomplete."""
        due, when, chance = time.monotonic(), source(self.seed, f"when {self.name}"), source(self.seed, self.name)
        while True:
            # The average rate is maintained: a long action is followed by shorter waits.
            due = max(due + self._draw_seconds(when), time.monotonic() - self.mean_seconds)
            if field.ended.wait(max(0.0, due - time.monotonic())):
                return
            try:
                with field.alone() if self.is_alone else field.shared():
                    if field.ended.is_set() or self.act(field, chance) is False:
                        return
            except OSError as failure:
                # The broker may be failing right now: note it, and leave the verdict to the reader of the table.
                field.journal.note(f"{self.name} not done", detail=str(failure))
            except Exception as failure:
                field.failures.append(f"{self.name}: {type(failure).__name__}: {failure}")
                return

    def _draw_seconds(self, when: random.Random) -> float:
        if self.is_even:
            return when.uniform(0.5, 1.5) * self.mean_seconds
        return when.expovariate(1 / self.mean_seconds)
