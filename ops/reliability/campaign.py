"""The campaign: one broker, its clients and bystanders, and the attacks on it, from start to table."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ops.reliability import chance
from ops.reliability.attacks import Attack, Battlefield
from ops.reliability.broker import ROLES, Broker
from ops.reliability.client_process import LIBRARIES, ClientProcess
from ops.reliability.journal import Journal
from ops.reliability.killing import Killing, Stopping
from ops.reliability.ledger import Tally

#: The beginning, against which memory at the end is held: everything is loaded and every client is at work.
WARM_SECONDS = 10.0
PROGRESS_SECONDS = 10.0


@dataclass(frozen=True)
class Orders:
    """What the campaign is told to do."""

    seed: int
    minutes: float
    kills: int | None = None
    settings: dict[str, str] = field(default_factory=dict)


@dataclass
class Footprint:
    """What the broker uses at a moment."""

    memory: dict[str, int]
    descriptors: int
    shared_files: int


@dataclass
class Result:
    """What came of a campaign."""

    orders: Orders
    seconds: float
    actions: dict[str, int]
    tallies: dict[str, Tally]
    before: Footprint
    after: Footprint
    failures: list[str]

    @property
    def is_bad(self) -> bool:
        """Whether anything was seen that must not be."""
        return bool(self.failures) or any(tally.faults for tally in self.tallies.values())


class Campaign:
    """One run in a directory of its own."""

    def __init__(self, orders: Orders, directory: Path, say: Callable[[str], None]) -> None:
        self._orders, self._say = orders, say
        self.broker = Broker(directory, directory / "data", orders.settings)
        self._journal = Journal(directory / "journal.jsonl")
        self._field = Battlefield(self.broker, self._journal)
        self._clients = [ClientProcess(module, self.broker.bootstrap, orders.seed) for module in LIBRARIES]

    def run(self) -> Result:
        """Run it to its end; the broker is stopped and every client has ended when this returns."""
        self.broker.start()
        try:
            for client in self._clients:
                client.start()
            time.sleep(WARM_SECONDS)
            before, begin = self._footprint(), time.monotonic()
            self._attack(begin + self._orders.minutes * 60)
            seconds = time.monotonic() - begin
            tallies = self._finish_clients()
            after = self._footprint()
        finally:
            for client in self._clients:
                client.kill()
            self.broker.terminate()
        return Result(
            self._orders, seconds, dict(self._journal.counts), tallies, before, after, list(self._field.failures)
        )

    def _attack(self, end: float) -> None:
        threads = [threading.Thread(target=each.run, args=(self._field,)) for each in self._attacks()]
        for thread in threads:
            thread.start()
        while time.monotonic() < end and self._is_well():
            self._field.ended.wait(min(PROGRESS_SECONDS, max(0.0, end - time.monotonic())))
            self._say(self._progress(end))
        self._field.ended.set()
        for thread in threads:
            thread.join()

    def _attacks(self) -> list[Attack]:
        def source(name: str) -> object:
            return chance.source(self._orders.seed, name)

        kills = self._orders.kills
        mean_kill = self._orders.minutes * 60 * 0.9 / (kills * len(ROLES)) if kills else 1.0
        return [
            Attack("kill", mean_kill, Killing(self._field, source("kill"), kills), source("when to kill")),
            Attack("stop", 5.0, Stopping(self._field, source("stop")), source("when to stop")),
        ]

    def _is_well(self) -> bool:
        if not self.broker.is_alive:
            self._field.failures.append(f"the broker has ended: {self.broker.log_tail()}")
        return not self._field.failures

    def _finish_clients(self) -> dict[str, Tally]:
        for client in self._clients:
            client.ask_to_finish()
        tallies: dict[str, Tally] = {}
        for client in self._clients:
            try:
                tallies |= client.finish()
            except (TimeoutError, EOFError) as failure:
                self._field.failures.append(f"{type(failure).__name__}: {failure}")
                tallies |= client.tallies()
        return tallies

    def _footprint(self) -> Footprint:
        return Footprint(self.broker.memory(), self.broker.descriptors(), len(self.broker.shared_files()))

    def _progress(self, end: float) -> str:
        tallies = [tally for client in self._clients for tally in client.tallies().values()]
        total = sum(tallies, Tally())
        return (
            f"{max(0, end - time.monotonic()):.0f} s left: {total.acknowledged} acknowledged, {total.read} read, "
            f"{total.faults} faults, {sum(self._journal.counts.values())} actions"
        )
