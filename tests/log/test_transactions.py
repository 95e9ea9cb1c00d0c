"""Transactions in the log: stable offset, aborted transactions and producer state, with deaths of the owner."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rotunda.broker.config.topic_config import LogConfig
from rotunda.broker.log.log_reader import LogReader
from rotunda.broker.log.partition_log import Checkpointed, PartitionLog
from rotunda.broker.log.producers import snapshot_schedule
from rotunda.broker.log.producers.producer_snapshot import decode, encode
from rotunda.broker.log.producers.producer_state import ProducerState
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.records.record_batch import read_header
from rotunda.broker.records.record_writer import BatchBuilder, EndTransactionMarker, end_transaction_marker
from tests.log.killing import AFTER, BEFORE, PARTLY, killed_at
from tests.log.log_writer import NAME, ModelLog, batch, end_of, published_end, stage, stored
from tests.log.transaction_model import Aborted, check_transactions, consume, expectation, index_entries
from tests.support.fakes import FakeClock
from tests.support.feeds import random_seed
from tests.support.record_batches import TIMESTAMP_MS
from tests.support.results import present
from tests.support.sampling import Sampling

TRANSACTIONAL = 0x10
PRODUCERS = 4
CONFIG = LogConfig(internal_segment_bytes=900, index_interval_bytes=150)
ONE_SEGMENT = LogConfig(index_interval_bytes=150)


def open_log(directory: Path, config: LogConfig = CONFIG) -> ModelLog:
    model = ModelLog(directory, config, FakeClock(wall_ms=TIMESTAMP_MS))
    model.open()
    return model


def send(model: ModelLog, producer_id: int, *, transactional: bool = True, count: int = 1) -> int:
    """Append the producer's next batch; return its offset."""
    entry = model.expected_producers().get(producer_id)
    sequence, epoch = (entry.next_sequence, entry.epoch) if entry else (0, 0)
    attributes = TRANSACTIONAL if transactional else 0
    data = batch(
        count, size=20, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, attributes=attributes
    )
    ((error, base_offset, _),) = model.append([data])
    assert error == 0
    return base_offset


def end(model: ModelLog, producer_id: int, *, commit: bool, bump: int = 0) -> int:
    """Append a marker for the coordinator; return its offset."""
    entry = model.expected_producers().get(producer_id)
    epoch = (entry.epoch if entry else 0) + bump
    log = model.log
    now_ms = model.clock.wall_ms()
    error, offset, _ = log.stage_marker(producer_id, epoch, 3, commit=commit)
    assert error == 0
    log.commit()
    model.published = published_end(log)
    marker = end_transaction_marker(producer_id, epoch, 3, commit, now_ms)
    model.acknowledged.append(stored(memoryview(marker), offset, log.leader_epoch))
    return offset


def test_stable_offset_and_index_by_example(tmp_path: Path) -> None:
    """users.md row 11: the stable part ends at the start of the earliest open transaction."""
    model = open_log(tmp_path / "t", ONE_SEGMENT)
    log = model.log
    assert send(model, 1, transactional=False) == 0
    assert log.last_stable_offset == 1
    assert send(model, 2, count=3) == 1
    assert send(model, 3) == 4
    assert log.last_stable_offset == 1
    assert log.ongoing_transaction(2, 0)
    assert not log.ongoing_transaction(2, 1)
    assert not log.ongoing_transaction(1, 0)
    assert end(model, 2, commit=False) == 5
    assert log.last_stable_offset == 4
    assert index_entries(tmp_path / "t") == [Aborted(2, 1, 5, 4)]
    assert end(model, 3, commit=True) == 6
    assert log.last_stable_offset == log.log_end_offset == 7
    assert index_entries(tmp_path / "t") == [Aborted(2, 1, 5, 4)]
    check_transactions(model, [LogReader(tmp_path / "t")], 1000)


def test_markers_are_validated(tmp_path: Path) -> None:
    """KIP-98, KIP-890: an older producer epoch or coordinator is fenced; version 2 requires a newer epoch."""
    model = open_log(tmp_path / "t")
    log = model.log
    invalid_epoch, fenced = int(ErrorCode.INVALID_PRODUCER_EPOCH), int(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    send(model, 2)
    end(model, 2, commit=True, bump=1)
    (entry,) = log.active_producers()
    assert (entry.epoch, entry.coordinator_epoch, entry.batches, entry.next_sequence) == (1, 3, (), 0)
    assert log.stage_marker(2, 0, 3, commit=True) == (invalid_epoch, -1, -1)
    assert log.stage_marker(2, 1, 2, commit=True) == (fenced, -1, -1)
    # No transaction is open: with the same epoch it is a repeated marker, and is written.
    assert log.stage_marker(2, 1, 3, commit=True, transaction_version=2)[0] == 0
    log.discard_staged()
    send(model, 2)
    assert log.stage_marker(2, 1, 3, commit=True, transaction_version=2) == (invalid_epoch, -1, -1)
    assert log.stage_marker(2, 2, 3, commit=True, transaction_version=2)[0] == 0
    assert log.stage_marker(99, 5, 0, commit=False)[0] == 0
    log.commit()
    assert log.last_stable_offset == log.log_end_offset
    assert index_entries(tmp_path / "t") == []


def test_a_transaction_accepts_only_its_own_batches(tmp_path: Path) -> None:
    model = open_log(tmp_path / "t")
    log = model.log
    send(model, 2)
    plain = batch(1, producer_id=2, producer_epoch=0, base_sequence=1)
    assert stage(log, plain)[0] == int(ErrorCode.INVALID_TXN_STATE)
    plain_of_next_epoch = batch(1, producer_id=2, producer_epoch=1, base_sequence=0)
    assert stage(log, plain_of_next_epoch)[0] == int(ErrorCode.INVALID_TXN_STATE)


def test_batches_of_a_coordinator_have_no_sequence(tmp_path: Path) -> None:
    """TxnOffsetCommit writes transactional batches without sequence numbers: only their epoch is validated."""
    model = open_log(tmp_path / "t")
    log = model.log

    def commit_offset(epoch: int) -> int:
        data = BatchBuilder([(b"k", b"v")]).build(TIMESTAMP_MS, producer_id=5, producer_epoch=epoch, transactional=True)
        header = present(read_header(data))
        return log.stage(memoryview(data), header)[0]

    assert [commit_offset(1), commit_offset(1), commit_offset(2)] == [0, 0, 0]
    assert commit_offset(1) == int(ErrorCode.INVALID_PRODUCER_EPOCH)
    log.commit()
    assert log.last_stable_offset == 0
    before = list(log.active_producers())
    log.close(clean=False)
    model.published = published_end(log)
    assert list(model.open().active_producers()) == before


def test_deleting_records_of_an_open_transaction(tmp_path: Path) -> None:
    """As in Kafka: the records are removed, the transaction stays open, the log is stable up to its start."""
    model = open_log(tmp_path / "t")
    log = model.log
    for _ in range(30):
        send(model, 2)
    assert log.delete_records_before(20) == 20
    assert log.last_stable_offset == 20
    send(model, 1, transactional=False)
    assert log.last_stable_offset == 20
    log = model.open()
    assert log.last_stable_offset == 20
    assert log.ongoing_transaction(2, 0)
    end(model, 2, commit=True)
    assert log.last_stable_offset == log.log_end_offset == 32


def test_index_entries_are_removed_with_their_segment(tmp_path: Path) -> None:
    model = open_log(tmp_path / "t")
    log = model.log
    for _ in range(40):
        send(model, 2)
        end(model, 2, commit=False)
    assert len(index_entries(tmp_path / "t")) == 40
    log.delete_records_before(60)
    first_base = log.segments()[0].base_offset
    assert first_base > 30
    assert [entry.last_offset for entry in index_entries(tmp_path / "t")] == [
        offset for offset in range(1, 80, 2) if offset >= first_base
    ]


class Work:
    """Random producers, plain and transactional, and the coordinator's markers."""

    def __init__(self, model: ModelLog, random_numbers: random.Random) -> None:
        self.model = model
        self.random = random_numbers

    def step(self) -> None:
        """Append one batch or marker."""
        producer_id = self.random.randrange(PRODUCERS)
        if producer_id == 0:
            send(self.model, 0, transactional=False, count=self.random.randrange(1, 4))
        elif self.random.random() < 0.65:
            send(self.model, producer_id, count=self.random.randrange(1, 4))
        else:
            end(self.model, producer_id, commit=self.random.random() < 0.5, bump=self.random.randrange(2))


def restart(model: ModelLog, recovery_point: int) -> PartitionLog:
    """Open the log like a start of the broker with a given `recovery_point`."""
    model.log = PartitionLog.open(model.directory, NAME, model.config, model.clock, Checkpointed(recovery_point))
    model.published = published_end(model.log)
    return model.log


@pytest.fixture(autouse=True)
def often_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a snapshot every few batches."""
    monkeypatch.setattr(snapshot_schedule, "SNAPSHOT_INTERVAL_BYTES", 20_000)


def test_readers_see_committed_records_in_any_interleaving(tmp_path: Path) -> None:
    """Producers, markers, rolls, replacements and restarts in any order, compared with the plain list of batches."""
    numbers = random.Random(random_seed())
    for run in range(8):
        config = LogConfig(internal_segment_bytes=numbers.choice([500, 900, 3000]), index_interval_bytes=150)
        model = open_log(tmp_path / f"{run}" / "topic-0", config)
        reader = LogReader(model.directory)
        work = Work(model, numbers)
        for _ in range(40):
            for _ in range(numbers.randrange(1, 6)):
                work.step()
            log = model.log
            match numbers.randrange(8):
                case 0:
                    log.close(clean=False)
                    model.open()
                case 1:
                    log.close()
                    restart(model, log.log_end_offset)
                case 2:
                    log.close(clean=False)
                    restart(model, numbers.randrange(log.log_end_offset + 1))
                case 3:
                    log.discard_staged()
                    assert log.stage_marker(1, 1000, 3, commit=False)[0] == 0
                    log.discard_staged()
            check_transactions(model, [reader, LogReader(model.directory)], numbers.choice([1, 300, 10_000]))
        model.check()


@pytest.mark.parametrize("moment", [BEFORE, AFTER, PARTLY])
@pytest.mark.parametrize("config", [CONFIG, ONE_SEGMENT], ids=["rolls", "one segment"])
def test_killed_at_any_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampling: Sampling, config: LogConfig, moment: int
) -> None:
    """No step of appending markers ends with an entry without its marker, or a marker without its entry."""
    for step in sampling.one_in(4, range(1, 10_000)):
        model = open_log(tmp_path / f"{step}" / "topic-0", config)
        reader = LogReader(model.directory)
        work = Work(model, random.Random(5))
        with killed_at(step, moment, monkeypatch) as killer:
            for number in range(25):
                work.step()
                if number % 6 == 5:
                    check_transactions(model, [reader], 500)
        model.open()
        check_transactions(model, [reader, LogReader(model.directory)], 500)
        for _ in range(4):
            work.step()
        check_transactions(model, [reader], 10_000)
        model.check()
        if killer.step < step:
            break
    assert step > 25


def test_a_machine_that_lost_its_power(tmp_path: Path) -> None:
    """Any part beyond the recovery point may exist; the index is rebuilt where it lacks entries."""
    numbers = random.Random(random_seed())
    for run in range(25):
        model = open_log(tmp_path / f"{run}" / "topic-0", numbers.choice([CONFIG, ONE_SEGMENT]))
        work = Work(model, numbers)
        for _ in range(60):
            work.step()
        log = model.log
        recovery_point = numbers.randrange(log.log_end_offset + 1)
        log.close(clean=False)
        for path in model.directory.glob("*.txnindex"):
            content = path.read_bytes()
            durable = [entry for entry in expectation(model.acknowledged).aborted if entry.last_offset < recovery_point]
            least = sum(34 for entry in durable if entry.last_offset >= int(path.stem))
            if least < len(content):
                kept = numbers.randrange(least, len(content) + 1)
                path.write_bytes(content[:kept] + numbers.choice([b"", bytes(len(content) - kept)]))
        restart(model, recovery_point)
        check_transactions(model, [LogReader(model.directory)], 700)
        work.step()
        check_transactions(model, [LogReader(model.directory)], 700)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-34] + b"\xff" * 40,
        lambda data: data[:-3],
        lambda data: bytes(len(data)),
        lambda _: b"garbage" * 40,
        lambda _: b"",
    ],
)
def test_a_durable_index_that_makes_no_sense_is_made_again(
    tmp_path: Path, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    model = open_log(tmp_path / "t")
    for _ in range(30):
        send(model, 2)
        end(model, 2, commit=False)
    log = model.log
    log.close()
    first = min((tmp_path / "t").glob("*.txnindex"))
    content = first.read_bytes()
    first.write_bytes(damage(content))
    restart(model, log.log_end_offset)
    check_transactions(model, [LogReader(tmp_path / "t")], 700)
    assert f"{first} is damaged" in caplog.text
    assert first.read_bytes() == content


def test_an_unpublished_entry_is_never_believed(tmp_path: Path) -> None:
    """A killed owner's entry for an abort that did not happen must not hide the later commit."""
    model = open_log(tmp_path / "t", ONE_SEGMENT)
    log = model.log
    reader = LogReader(tmp_path / "t")
    send(model, 1)
    end(model, 1, commit=False)
    send(model, 2)
    published, stable = end_of(log), log.last_stable_offset
    assert log.stage_marker(2, 0, 3, commit=False)[0] == 0
    log.commit()
    assert len(index_entries(tmp_path / "t")) == 2
    assert consume(reader, stable, published, 10_000) == []
    model.open()
    end(model, 2, commit=True)
    check_transactions(model, [reader, LogReader(tmp_path / "t")], 10_000)


def test_slices_of_other_readers_do_not_show_unstable_records(tmp_path: Path) -> None:
    """Cached slices for read_uncommitted readers end beyond the stable offset."""
    model = open_log(tmp_path / "t")
    log = model.log
    for _ in range(3):
        send(model, 0, transactional=False)
    send(model, 1)
    for _ in range(40):
        send(model, 0, transactional=False)
    reader = LogReader(tmp_path / "t")
    plain = present(reader.locate(0, end_of(log), 10_000))
    assert plain.next_offset > log.last_stable_offset == 3
    found, aborted = reader.locate_committed(0, 3, end_of(log), 10_000)
    assert found is not None
    assert (found.next_offset, aborted) == (3, ())
    assert found.position + found.length <= plain.position + plain.length
    again = reader.locate(0, end_of(log), 10_000)
    assert again == plain


def test_a_batch_is_delivered_whole(tmp_path: Path) -> None:
    """users.md row 12: an offset in the middle of a batch gets the batch, also in committed reads."""
    model = open_log(tmp_path / "t", ONE_SEGMENT)
    log = model.log
    send(model, 1, count=10)
    end(model, 1, commit=True)
    send(model, 2, count=5)
    for reader in (LogReader(tmp_path / "t"), LogReader(tmp_path / "t")):
        for offset in range(10):
            found, _ = reader.locate_committed(offset, log.last_stable_offset, end_of(log), 1)
            assert found is not None
            assert (found.position, found.next_offset) == (0, 10)


def test_transactions_that_span_segments(tmp_path: Path) -> None:
    """The entry is in the segment of the marker; a fetch from an earlier segment includes it nevertheless."""
    model = open_log(tmp_path / "t")
    log = model.log
    send(model, 1)
    for _ in range(30):
        send(model, 0, transactional=False)
    end(model, 1, commit=False)
    assert len(log.segments()) > 2
    reader = LogReader(tmp_path / "t")
    found, aborted = reader.locate_committed(0, log.last_stable_offset, end_of(log), 100)
    assert found is not None
    assert aborted == ((1, 0),)
    _, aborted = reader.locate_committed(5, log.last_stable_offset, end_of(log), 100)
    assert aborted == ((1, 0),)
    send(model, 0, transactional=False)
    _, aborted = reader.locate_committed(32, log.last_stable_offset, end_of(log), 10_000)
    assert aborted == ()


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["data", "commit", "abort"]), st.integers(0, 1)), max_size=40)
)
def test_open_transactions_are_ascending(steps: list[tuple[int, str, int]]) -> None:
    """The first open transaction is the earliest: no other is read."""
    state = ProducerState()
    for offset, (producer_id, kind, bump) in enumerate(steps):
        entry = state.get(producer_id)
        epoch = (entry.epoch if entry else 0) + bump
        if kind == "data":
            header = present(
                read_header(
                    BatchBuilder([(None, b"v")]).build(
                        5, producer_id=producer_id, producer_epoch=epoch, transactional=True
                    )
                )
            )
            state.append(header, offset, 0, 5)
        else:
            state.end_transaction(producer_id, epoch, EndTransactionMarker(kind == "commit", 0), offset, 5)
        opened = [e.current_txn_first_offset for e in state if e.current_txn_first_offset >= 0]
        assert list(state.open_transactions.values()) == sorted(opened)
        assert state.stable_end(offset + 1) == min([*opened, offset + 1])
        again = ProducerState(decode(b"".join(encode(state))))
        assert list(again.open_transactions.items()) == list(state.open_transactions.items())
