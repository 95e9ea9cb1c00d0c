"""A handler killed at any instruction: its replacement finds exactly the published records and continues."""

import random
from pathlib import Path

import pytest

from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.log.producers import snapshot_schedule
from rotunda.broker.log.segments import log_segment
from rotunda.broker.log.validation import append_limits
from tests.log.killing import AFTER, BEFORE, PARTLY, killed_at
from tests.log.log_writer import ModelLog, batch, by_id
from tests.support.fakes import FakeClock
from tests.support.record_batches import TIMESTAMP_MS
from tests.support.sampling import Sampling

CONFIGS = {
    "rolls": LogConfig(internal_segment_bytes=700, index_interval_bytes=100),
    "preallocated": LogConfig(internal_segment_bytes=700, index_interval_bytes=100, preallocate=True),
    "one segment": LogConfig(index_interval_bytes=100),
}
PRODUCERS = 3


class Work:
    """The same batches for every run, with consecutive sequences, so that a lost or doubled batch is rejected."""

    def __init__(self, model: ModelLog, seed: int) -> None:
        self.model = model
        self.random = random.Random(seed)
        self.clock_ms = TIMESTAMP_MS

    def next_batches(self) -> list[memoryview]:
        """Return the batches after the acknowledged ones: the client's retries after a crash."""
        state = self.model.expected_producers()
        following = {producer_id: entry.next_sequence for producer_id, entry in by_id(state).items()}
        batches = []
        for _ in range(self.random.randrange(1, 4)):
            producer_id = self.random.randrange(PRODUCERS)
            count = self.random.randrange(1, 4)
            self.clock_ms += self.random.randrange(-2, 5)
            sequence = following.get(producer_id, 0)
            following[producer_id] = sequence + count
            fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
            batches.append(batch(count, size=30, timestamp_ms=self.clock_ms, **fields))
        return batches

    def append(self) -> None:
        assert all(result[0] == 0 for result in self.model.append(self.next_batches()))


@pytest.fixture(autouse=True)
def often_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a snapshot every few batches, so that kills hit them too."""
    monkeypatch.setattr(snapshot_schedule, "SNAPSHOT_INTERVAL_BYTES", 20_000)


@pytest.mark.parametrize("moment", [BEFORE, AFTER, PARTLY])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
@pytest.mark.parametrize("are_large", [False, True], ids=["small", "large"])
def test_killed_at_any_step_of_appending(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sampling: Sampling,
    config: LogConfig,
    moment: int,
    are_large: bool,
) -> None:
    """The larger ones of the large batches are written ahead, in chunks."""
    if are_large:
        monkeypatch.setattr(append_limits, "WRITTEN_AT_ONCE_BYTES", 120)
        monkeypatch.setattr(log_segment, "_AHEAD_PIECE_BYTES", 70)
    for step in sampling.one_in(4, range(1, 10_000)):
        model = ModelLog(tmp_path / f"{step}" / "topic-0", config, FakeClock(wall_ms=TIMESTAMP_MS))
        model.open()
        work = Work(model, seed=1)
        with killed_at(step, moment, monkeypatch) as killer:
            for _ in range(12):
                work.append()
        model.open()
        model.check()
        for _ in range(4):
            work.append()
        model.check()
        if killer.step < step:
            break
    assert step > 25


@pytest.mark.parametrize("moment", [BEFORE, AFTER, PARTLY])
def test_killed_again_while_the_replacement_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int) -> None:
    """The replacement is killed at every step of its opening, after its predecessor was killed in a roll."""
    for step in range(1, 10_000):
        model = ModelLog(tmp_path / f"{step}" / "topic-0", CONFIGS["rolls"], FakeClock(wall_ms=TIMESTAMP_MS))
        model.open()
        work = Work(model, seed=2)
        for _ in range(6):
            work.append()
        with killed_at(9, AFTER, monkeypatch):
            for _ in range(6):
                work.append()
        with killed_at(step, moment, monkeypatch) as killer:
            model.open()
        model.open()
        model.check()
        work.append()
        model.check()
        if killer.step < step:
            break
    assert step > 5


@pytest.mark.parametrize("moment", [BEFORE, AFTER])
def test_killed_while_the_log_is_first_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int) -> None:
    """Nothing is published then, so the replacement opens it like a start of the broker."""
    for step in range(1, 100):
        model = ModelLog(tmp_path / f"{step}" / "topic-0", LogConfig())
        with killed_at(step, moment, monkeypatch) as killer:
            model.open()
        model.published = None
        model.open()
        model.append([batch(1)])
        model.check()
        if killer.step < step:
            break
    assert step > 5
