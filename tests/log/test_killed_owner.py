"""A handler killed at any instruction: its replacement finds exactly the published records and continues."""

import mmap
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.log import append_limits
from rotunda.broker.log.partition_log import PartitionLog, PublishedEnd
from rotunda.broker.log.producers import snapshot_schedule
from rotunda.broker.log.segments import log_segment
from tests.log.killing import AFTER, BEFORE, PARTLY, killed_at
from tests.log.log_writer import NAME, ModelLog, batch, by_id, end_of, log_bytes, read_everything
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


CHILD = """
import mmap, os, sys
from pathlib import Path
from rotunda.broker.clock import SystemClock
from rotunda.broker.log.producers import snapshot_schedule
from rotunda.broker.log.partition_log import PartitionLog, PublishedEnd
from rotunda.broker.protocol.records import read_header
from rotunda.broker.config.topic_config import LogConfig
from tests.log.log_writer import NAME, batch
snapshot_schedule.SNAPSHOT_INTERVAL_BYTES = 200_000
words = memoryview(mmap.mmap(os.open(sys.argv[2], os.O_RDWR), 4096)).cast("q")
slot = 1 + 3 * words[0]
config = LogConfig(internal_segment_bytes=20_000, index_interval_bytes=200)
log = PartitionLog.open(Path(sys.argv[1]), NAME, config, SystemClock(), PublishedEnd(*words[slot:slot + 3], 0))
sys.stdout.write("ready\\n")
sys.stdout.flush()
sequence = max((entry.next_sequence for entry in log.active_producers()), default=0)
while True:
    for _ in range(3):
        data = batch(1, size=sequence % 200, producer_id=5, producer_epoch=0, base_sequence=sequence)
        assert log.stage(data, read_header(data))[0] == 0, sequence
        sequence += 1
    log.commit()
    other = 1 - words[0]
    words[1 + 3 * other] = log.log_end_offset
    words[2 + 3 * other] = log.segment_base
    words[3 + 3 * other] = log.position
    words[0] = other
"""


def test_a_replacement_goes_on_where_the_killed_one_was_published(tmp_path: Path) -> None:
    """A real process and a real SIGKILL, several times; each replacement continues at the last published end."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    delays = random.Random(seed)
    directory = tmp_path / "topic-0"
    clock = FakeClock(wall_ms=TIMESTAMP_MS)
    config = LogConfig(internal_segment_bytes=20_000, index_interval_bytes=200)
    PartitionLog.open(directory, NAME, config, clock, PublishedEnd(0, 0, 0, 0))
    shared = tmp_path / "published"
    shared.write_bytes(bytes(4096))
    last_end = 0
    for _ in range(6):
        with subprocess.Popen(
            [sys.executable, "-c", CHILD, str(directory), str(shared)],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            wait_for_growth(shared, last_end + delays.randrange(1, 900), child)
            os.kill(child.pid, signal.SIGKILL)
        words = memoryview(shared.read_bytes()).cast("q")
        slot = 1 + 3 * words[0]
        published = PublishedEnd(*words[slot : slot + 3], 0)
        log = PartitionLog.open(directory, NAME, config, clock, published)
        assert log.log_end_offset == published.end_offset > last_end
        last_end = log.log_end_offset
        (producer,) = log.active_producers()
        assert producer.next_sequence == last_end
        assert [entry.last_offset for entry in producer.batches] == list(range(last_end - 5, last_end))
        assert read_everything(directory, end_of(log)) == log_bytes(directory)
        log.close(clean=False)


def wait_for_growth(shared: Path, end: int, child: "subprocess.Popen[bytes]") -> None:
    """Return once the published end has passed `end`; the child must live until then."""
    with open(shared, "r+b") as file, mmap.mmap(file.fileno(), 4096) as mapped:
        while child.poll() is None:
            words = [int.from_bytes(mapped[i * 8 : i * 8 + 8], sys.byteorder) for i in range(7)]
            if words[1 + 3 * words[0]] > end:
                return
    raise AssertionError(f"the child ended by itself: {child.returncode}")
