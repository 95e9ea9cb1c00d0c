"""Losses: the broker is stopped, files of a partition are removed or left over, and the broker is started again.

The partition is of a topic of its own. The start must name it in the log, delete no other segment, and use no offset
twice.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ops.reliability import batches
from ops.reliability.attacks import Battlefield
from ops.reliability.poison import OutcomeError, produced
from ops.reliability.wire import Wire
from rotunda.broker.protocol.api_keys import ApiKey

#: The action in the journal.
LOST = "restart after a loss"
#: Each batch has a segment of its own.
BATCHES, BATCH_BYTES, SEGMENT_BYTES = 5, 600_000, 1 << 20


class Loss(NamedTuple):
    """A damage to a partition's directory, and the level of the line that reports it."""

    do: Callable[[Path], object]
    level: str = "ERROR"


def remove_logs(directory: Path) -> None:
    """Remove all log files."""
    for path in logs(directory):
        path.unlink()


def remove_first(directory: Path) -> None:
    """Remove the first segment."""
    remove_segment(logs(directory)[0])


def remove_middle(directory: Path) -> None:
    """Remove a segment between others."""
    remove_segment(logs(directory)[BATCHES // 2])


def leave_swap(directory: Path) -> None:
    """Leave the files of a compaction that was interrupted before it was decided."""
    first = logs(directory)[0]
    for suffix in (".swap", ".cleaned"):
        first.with_name(first.name + suffix).write_bytes(b"")


LOSSES = (Loss(remove_logs), Loss(shutil.rmtree), Loss(remove_first), Loss(remove_middle), Loss(leave_swap, "WARNING"))


class Losses:
    """Restarts the broker after one of the losses."""

    def __init__(self, field: Battlefield, chance: random.Random, changed: Callable[[], None]) -> None:
        self._field, self._chance, self._changed = field, chance, changed

    def __call__(self) -> None:
        """Do it once."""
        broker, loss = self._field.broker, self._chance.choice(LOSSES)
        topic = f"lost-{self._chance.randrange(10**9)}"
        directory = broker.data_dir / f"{topic}-0"
        with Wire(broker.port) as wire:
            fill(wire, topic)
        with self._field.journal.window(LOST, detail=f"{directory.name} {loss.do.__name__}"):
            broker.terminate()
            loss.do(directory)
            left, seen = sizes(directory), len(broker.log_lines())
            broker.start()
            self._changed()
        lines = [line for line in broker.log_lines()[seen:] if loss.level in line and str(directory) in line]
        if not lines:
            raise OutcomeError(f"no {loss.level} line reports {loss.do.__name__} of {directory.name}")
        if not left.items() <= sizes(directory).items():
            raise OutcomeError(f"{loss.do.__name__} of {directory.name}: {left} became {sizes(directory)}")
        with Wire(broker.port) as wire:
            offset = append(wire, topic)
        if offset != BATCHES:
            raise OutcomeError(f"{loss.do.__name__} of {directory.name}: the next offset is {offset}, not {BATCHES}")


def fill(wire: Wire, topic: str) -> None:
    """Create a topic and write its segments. Raises ConnectionError if the broker rejects that now."""
    configs = [{"name": "segment.bytes", "value": str(SEGMENT_BYTES)}]
    wanted = {"name": topic, "num_partitions": 1, "replication_factor": 1, "configs": configs}
    wire.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [wanted], "timeout_ms": 10_000})
    for _ in range(BATCHES):
        append(wire, topic)


def append(wire: Wire, topic: str) -> int:
    """Append a batch and return its offset. Raises ConnectionError if the broker rejects it."""
    payload = batches.records([bytes(BATCH_BYTES)])
    answer = produced(wire, topic, batches.batch(payload, 1, int(time.time() * 1000)))
    if answer.error_code:
        raise ConnectionError(f"no record in {topic}: error {answer.error_code}")
    return int(answer.base_offset)


def logs(directory: Path) -> list[Path]:
    """Return the log files of a partition, oldest first."""
    return sorted(directory.glob("*.log"))


def sizes(directory: Path) -> dict[str, int]:
    """Return the sizes of the log files, by name."""
    return {path.name: path.stat().st_size for path in logs(directory)}


def remove_segment(log: Path) -> None:
    """Remove all files of a segment."""
    for path in log.parent.glob(f"{log.stem}.*"):
        path.unlink()
