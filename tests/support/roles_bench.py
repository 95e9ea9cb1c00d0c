"""A recorder that records roles, over byte arrays: the test plays the processes that it watches."""

import os
from pathlib import Path

from rotunda.broker.request_log.role_rows import RoleRows, RoleSources
from rotunda.shm.metrics.process_metrics import MetricsSegment, MetricsWriter
from rotunda.shm.rings.ring import RingProducer, initialise, ring_bytes
from rotunda.shm.rings.ring_fill import RingShare
from rotunda.shm.tables.process_slots import HANDLER, PROCESSOR, SUPERVISOR, ProcessSlots
from tests.support.recorder_bench import RecorderBench

INTERVAL_MS = 10_000
RING_BYTES = 4096


class RolesBench(RecorderBench):
    """One processor, which is this process, and one handler; the handler reads one ring."""

    def __init__(self, root: Path, **settings: object) -> None:
        super().__init__(root, **settings)
        self.metrics = MetricsSegment(memoryview(bytearray(MetricsSegment.bytes_needed(1, 1))), 1, 1)
        self.metrics.initialise()
        self.slots = ProcessSlots(memoryview(bytearray(ProcessSlots.bytes_needed(1, 1))), 0, 1, 1)
        self.slots.initialise()
        self.processor, self.handler = (MetricsWriter(self.metrics.page(role, 0)) for role in (PROCESSOR, HANDLER))
        for role in (SUPERVISOR, PROCESSOR):
            self.slots.set_pid(role, 0, os.getpid())
        ring = memoryview(bytearray(ring_bytes(RING_BYTES)))
        initialise(ring, 0, RING_BYTES)
        self.ring = RingProducer(ring, 0)
        self._fills = {("handler", 0): [RingShare(ring, 0)]}
        self.watch()

    def watch(self) -> RoleRows:
        """Have the recorder record roles, as it does from its start on."""
        sources = RoleSources(self.slots, self.metrics.readers_by_process(), self._fills)
        self.roles = RoleRows(sources, self.rings, self.clock.monotonic_ns())
        self.recorder.record_roles(self.roles)
        return self.roles

    def count(self, page: MetricsWriter, name: str, n: int, label: str = "") -> None:
        """Have a process count."""
        page.add(page.index(name, label), n)

    def rows(self, role: str) -> list[dict]:
        """Finish every file; return the rows of one role in the order of their times."""
        self.recorder.finish()
        return sorted((row for row in self.read("roles") if row["role"] == role), key=lambda row: row["time"])
