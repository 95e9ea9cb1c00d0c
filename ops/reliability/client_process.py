"""The process of one client library: it runs the library's workloads and sends their tallies.

The campaign starts one for each library, so that none waits for another's interpreter lock, and talks to it through
a pipe: `finish` in, tallies by workload out.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import threading
import traceback
from dataclasses import replace
from multiprocessing.connection import Connection

from ops.clients.library import Kind, Library
from ops.reliability import chance
from ops.reliability.compacted import CompactedWorkload
from ops.reliability.groups import GroupWorkload
from ops.reliability.ledger import Tally
from ops.reliability.share_groups import ShareWorkload
from ops.reliability.wire import Wire
from ops.reliability.workloads import TopicWorkload, Workload
from rotunda.broker.protocol.api_keys import ApiKey

LIBRARIES = ("with_confluent", "with_kafka_python", "with_aiokafka", "with_rotunda")
TALLY_SECONDS = 1.0
#: The broker's processes have priority where there are too few cores.
NICENESS = 5
END_SECONDS = 400.0
FINISH = "finish"


class ClientProcess:
    """The campaign's side: `start`, then `tallies` at any time, then `finish`."""

    def __init__(self, module: str, bootstrap: str, seed: int, load: float) -> None:
        self.name = module.removeprefix("with_")
        context = multiprocessing.get_context("spawn")
        self._ours, self._theirs = context.Pipe()
        self._process = context.Process(target=run, args=(module, bootstrap, seed, load, self._theirs), daemon=True)
        self._tallies: dict[str, Tally] = {}
        #: Failures of the process itself, which do not count against the broker.
        self.failures: list[str] = []

    def start(self) -> None:
        self._process.start()
        # The process has it now: when that ends, the pipe does.
        self._theirs.close()

    def tallies(self) -> dict[str, Tally]:
        """Return the newest tally of each workload."""
        try:
            while self._ours.poll():
                self._tallies, self.failures, _ = self._ours.recv()
        except EOFError:
            return self._tallies
        return self._tallies

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    def ask_to_finish(self) -> None:
        """Stop the workloads' writers and have them read everything."""
        if self.is_alive:
            self._ours.send(FINISH)

    def finish(self) -> dict[str, Tally]:
        """Wait for the last tallies. Raises TimeoutError when none arrive, EOFError when the process ends early."""
        is_last = False
        while not is_last:
            if not self._ours.poll(END_SECONDS):
                raise TimeoutError(f"the clients of {self.name} do not come to an end")
            self._tallies, self.failures, is_last = self._ours.recv()
        self._process.join(END_SECONDS)
        return self._tallies

    def kill(self) -> None:
        if self._process.pid is not None:
            self._process.kill()
            self._process.join()


def run(module: str, bootstrap: str, seed: int, load: float, pipe: Connection) -> None:
    """Run the workloads of one library until told to finish; runs in the process. `load` is a factor on their rate."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    failures: list[str] = []
    threading.excepthook = lambda failed: failures.append("".join(traceback.format_exception(failed.exc_value)))
    library = importlib.import_module(f"ops.clients.{module}").library(bootstrap)
    library = replace(library, records_per_second=library.records_per_second * load)
    port = int(bootstrap.rpartition(":")[2])
    workloads = workloads_of(library, port, seed)
    make_topics(port, workloads)
    for workload in workloads:
        workload.start()
    while not pipe.poll(TALLY_SECONDS):
        pipe.send(({each.name: each.tally(at_end=False) for each in workloads}, failures, False))
    finishing = [threading.Thread(target=each.finish, daemon=True) for each in workloads]
    for thread in finishing:
        thread.start()
    for thread in finishing:
        thread.join()
    pipe.send(({each.name: each.tally(at_end=True) for each in workloads}, failures, True))


def make_topics(port: int, workloads: list[Workload]) -> None:
    topics = [topic.wanted() for each in workloads for topic in each.topics]
    with Wire(port) as wire:
        answer = wire.ask(ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout_ms": 30_000})
    for topic in answer.topics:
        if topic.error_code:
            raise OSError(f"topic {topic.name} was not made: {topic.error_message}")


def workloads_of(library: Library, port: int, seed: int) -> list[Workload]:
    topics = {kind: TopicWorkload(library, kind, chance.source(seed, f"{library.name} {kind.value}")) for kind in Kind}
    groups: list[Workload] = [
        GroupWorkload(
            library, protocol, topics[Kind.IDEMPOTENT], chance.source(seed, f"{library.name} {protocol} group")
        )
        for protocol in library.protocols
    ]
    if library.has_share_group:
        chosen = chance.source(seed, f"{library.name} share group")
        groups.append(ShareWorkload(library, port, topics[Kind.IDEMPOTENT], chosen))
    compacted = CompactedWorkload(library, chance.source(seed, f"{library.name} compacted"))
    return [*topics.values(), *groups, compacted]
