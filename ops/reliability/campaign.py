"""The campaign: one broker, its clients and bystanders, and the attacks on it, from start to table."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ops import secured
from ops.broker import ROLES, SETTINGS, Broker
from ops.free_ports import free_ports
from ops.reliability.administration import change_settings, change_threads, change_topics
from ops.reliability.attacks import Act, Attack, Battlefield
from ops.reliability.bystander import Bystanders, Sightings
from ops.reliability.client_process import LIBRARIES, ClientProcess
from ops.reliability.disk import Disk
from ops.reliability.fuzzer import FRAMES, STRANGERS, Fuzzer
from ops.reliability.journal import Journal
from ops.reliability.killing import Killing, stop
from ops.reliability.ledger import Tally
from ops.reliability.machine import fill_disk, restart
from ops.reliability.pauses import CauseOfPauses, by_cause, unexplained
from ops.reliability.poison import poison
from ops.reliability.sockets import slow_readers, slow_senders, storm
from ops.reliability.turns import Turns

#: The time of the baseline for memory at the end: everything is loaded and every client is running.
WARM_SECONDS = 15.0
#: After the last attack the broker has this long to settle.
REST_SECONDS = 5.0
PROGRESS_SECONDS = 10.0
#: Ordered kills run a little faster than needed, so that all are done at the end.
HASTE = 0.92
#: A longer pause of a bystander is a fault, unless the cause is the stop of its own process.
LONGEST_PAUSE_SECONDS = 1.0
DISK_MEGABYTES = 4096
#: Compaction runs within seconds, and no record expires.
COMPACTION = {"log.cleaner.backoff.ms": "1000", "log.retention.ms": "-1"}
KILL, DISK, RESTART = "kill", "disk", "restart"


class Frequency(NamedTuple):
    """An attack, and the mean interval in seconds where nothing else is ordered."""

    act: Act
    mean_seconds: float


ACTIONS = {
    "stop": Frequency(stop, 5.0),
    "poison": Frequency(poison, 2.0),
    "storm": Frequency(storm, 15.0),
    "slow readers": Frequency(slow_readers, 10.0),
    "slow senders": Frequency(slow_senders, 10.0),
    "topics": Frequency(change_topics, 2.0),
    "settings": Frequency(change_settings, 2.0),
    "threads": Frequency(change_threads, 7.0),
    DISK: Frequency(fill_disk, 45.0),
    RESTART: Frequency(restart, 90.0),
}
KILL_SECONDS = 1.0
#: Rates of mutated frames, where nothing else is ordered. Handshakes cost more than frames.
FRAMES_PER_SECOND = {FRAMES: 300.0, STRANGERS: 30.0}
ATTACKS = (KILL, *ACTIONS, *FRAMES_PER_SECOND)


@dataclass(frozen=True)
class Orders:
    """The parameters of a campaign.

    `kills` of each role and `frames` are spread evenly over the time; `load` is a factor on the rate of the clients.
    `frames` are those of strangers where only strangers send them.
    """

    seed: int
    minutes: float
    kills: int | None = None
    frames: int | None = None
    load: float = 1.0
    attacks: tuple[str, ...] = ATTACKS
    settings: dict[str, str] = field(default_factory=dict)

    def frames_per_second(self, kind: str) -> float:
        if self.frames is None or (kind == STRANGERS and FRAMES in self.attacks):
            return FRAMES_PER_SECOND[kind]
        return self.frames / (self.minutes * 60) / HASTE


@dataclass
class Footprint:
    """The broker's resource usage at one time."""

    memory: dict[str, int]
    descriptors: int
    shared_files: int

    @property
    def total(self) -> int:
        return sum(self.memory.values())


@dataclass
class Result:
    """The result of a campaign. `footprints` are of the beginning, each quarter and the end.

    `remarks` list actions that failed and findings to look at.
    """

    orders: Orders
    seconds: float
    actions: dict[str, int]
    frames: dict[str, int]
    tallies: dict[str, Tally]
    sightings: Sightings
    pauses: list[CauseOfPauses]
    footprints: list[Footprint]
    turns: Turns
    remarks: list[str]
    failures: list[str]

    @property
    def is_bad(self) -> bool:
        return bool(self.failures) or any(tally.faults for tally in self.tallies.values())


class Campaign:
    """One run in a directory of its own."""

    def __init__(
        self, orders: Orders, directory: Path, say: Callable[[str], None], *, keeps_data: bool = False
    ) -> None:
        self._orders, self._say = orders, say
        self._keeps_data = keeps_data
        self._remarks: list[str] = []
        self._samples: list[Footprint] = []
        self._told: set[str] = set()
        self._disk = Disk(directory / "disk", DISK_MEGABYTES)
        ports = dict(zip(secured.PROTOCOLS, free_ports(len(secured.PROTOCOLS)), strict=True))
        settings = {**SETTINGS, **COMPACTION, **secured.settings(directory, ports), **orders.settings}
        self.broker = Broker(directory, settings, self._disk.directory / "data", comes_first=True)
        self._journal = Journal(directory / "journal.jsonl")
        self._clients = [ClientProcess(module, self.broker.bootstrap, orders.seed, orders.load) for module in LIBRARIES]
        self._bystanders = Bystanders(self.broker.port, lambda: self.broker.pid)
        self._field = Battlefield(self.broker, self._disk, self._journal, self._bystanders.broker_has_changed)
        trusted = secured.authority_of(directory)
        self._fuzzers = {
            kind: Fuzzer(kind, ports, trusted, orders.seed, orders.frames, orders.frames_per_second(kind))
            for kind in FRAMES_PER_SECOND
            if kind in orders.attacks
        }

    def run(self) -> Result:
        """Run it to its end; afterwards the broker is stopped and every client has ended."""
        self._prepare_disk()
        secured.make_certificates(self.broker.directory)
        try:
            self.broker.start()
            secured.make_user({"bootstrap.servers": self.broker.bootstrap})
            return self._run()
        finally:
            self._field.ended.set()
            for client in self._clients:
                client.kill()
            self._bystanders.kill()
            self._stop_fuzzers()
            self.broker.terminate()
            self._disk.unmount(keeps_data=self._keeps_data)

    def _run(self) -> Result:
        for client in self._clients:
            client.start()
        self._bystanders.start()
        time.sleep(WARM_SECONDS)
        footprints, begin = [self._footprint()], time.monotonic()
        self._attack(begin + self._orders.minutes * 60)
        seconds = time.monotonic() - begin
        time.sleep(REST_SECONDS)
        self._note_an_end()
        footprints += [*at_quarters(self._samples), self._footprint()]
        tallies = self._finish_clients()
        sightings = self._bystanders.finish()
        if stuck := self._frames()["stuck"]:
            self._remarks.append(f"{stuck} connections of mutated frames were neither answered nor closed.")
        self._remarks += unexplained(sightings.pauses, self._journal, LONGEST_PAUSE_SECONDS)
        return Result(
            orders=self._orders,
            seconds=seconds,
            actions=dict(self._journal.counts),
            frames=self._frames(),
            tallies=tallies,
            sightings=sightings,
            pauses=by_cause(sightings.pauses, self._journal),
            footprints=footprints,
            turns=Turns.of(self.broker.log_lines()),
            remarks=self._remarks,
            failures=list(self._field.failures),
        )

    def _prepare_disk(self) -> None:
        self._disk.directory.mkdir(parents=True, exist_ok=True)
        complaint = self._disk.mount() if os.geteuid() == 0 else "only root may"
        if complaint and DISK in self._orders.attacks:
            self._remarks.append(f"The disk was never full: a small one could not be mounted ({complaint}).")

    def _attack(self, end: float) -> None:
        threads = [threading.Thread(target=each.run, args=(self._field,)) for each in self._attacks()]
        for thread in threads:
            thread.start()
        for fuzzer in self._fuzzers.values():
            fuzzer.start()
        while time.monotonic() < end and self._is_well():
            self._field.ended.wait(min(PROGRESS_SECONDS, max(0.0, end - time.monotonic())))
            self._say(self._progress(end))
        self._field.ended.set()
        self._stop_fuzzers()
        for thread in threads:
            thread.join()
        self._is_well()

    def _attacks(self) -> list[Attack]:
        orders, kill_seconds = self._orders, KILL_SECONDS
        if orders.kills:
            kill_seconds = orders.minutes * 60 * HASTE / (orders.kills * len(ROLES))
        actions = {KILL: Frequency(Killing(orders.kills), kill_seconds), **ACTIONS}
        if not self._disk.is_mounted:
            del actions[DISK]
        return [
            Attack(
                name,
                mean_seconds,
                act,
                orders.seed,
                is_alone=name == RESTART,
                # As many kills as were ordered are spread over the time; two dozen within two seconds are a load of
                # their own, of processes that start.
                is_even=name == KILL and orders.kills is not None,
            )
            for name, (act, mean_seconds) in actions.items()
            if name in orders.attacks
        ]

    def _stop_fuzzers(self) -> None:
        for fuzzer in self._fuzzers.values():
            fuzzer.stop()

    def _frames(self) -> Counter[str]:
        """Return the counts of the fuzzers together; both are made from the same versions."""
        return sum((Counter(each.numbers()) for each in self._fuzzers.values()), Counter())

    def _note_an_end(self) -> None:
        with self._field.shared():
            if not self.broker.is_alive and not self._field.failures:
                self._field.failures.append(f"the broker has ended: {self.broker.log_tail()}")

    def _is_well(self) -> bool:
        self._note_an_end()
        dead = [client.name for client in self._clients if not client.is_alive]
        if dead:
            self._field.failures.append(f"the clients of {', '.join(dead)} have ended")
        return not self._field.failures

    def _finish_clients(self) -> dict[str, Tally]:
        tallies: dict[str, Tally] = {}
        for client in self._clients:
            client.ask_to_finish()
        for client in self._clients:
            try:
                tallies |= client.finish()
            except (TimeoutError, EOFError) as failure:
                self._field.failures.append(f"clients of {client.name}: {type(failure).__name__}: {failure}")
                tallies |= client.tallies()
            self._field.failures += [f"clients of {client.name}: {failure}" for failure in client.failures]
        return tallies

    def _footprint(self) -> Footprint:
        return Footprint(self.broker.memory(), self.broker.descriptors(), len(self.broker.shared_files()))

    def _progress(self, end: float) -> str:
        self._samples.append(self._footprint())
        tallies = {name: tally for client in self._clients for name, tally in client.tallies().items()}
        total = sum(tallies.values(), Tally())
        for name, tally in tallies.items():
            for line in tally.evidence:
                if line not in self._told:
                    self._told.add(line)
                    self._say(f"{name}: {line}")
        return (
            f"{max(0, end - time.monotonic()):.0f} s left: {total.acknowledged} acknowledged, {total.read} read, "
            f"{total.faults} faults, {sum(self._journal.counts.values())} actions, "
            f"{self._frames()['frames']} frames, {self._samples[-1].total >> 20} MB"
        )


def at_quarters(samples: list[Footprint]) -> list[Footprint]:
    """Return the footprints of the first three quarters: of each the sample with the most memory."""
    size = max(1, len(samples) // 4)
    quarters = [samples[first : first + size] for first in (0, size, 2 * size)]
    return [max(quarter, key=lambda each: each.total) for quarter in quarters if quarter]
