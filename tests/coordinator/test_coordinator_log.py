"""CoordinatorLog: records of a turn share batches, those of one call are not split, and each callback runs once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from rotunda.broker.coordinator.coordinator_log import BATCH_BYTES, MANY_CONNECTIONS, CommitBatcher, CoordinatorLog
from rotunda.broker.coordinator.offsets.offset_records import OFFSET_COMMIT, numbered_offset_value, offset_value
from rotunda.broker.coordinator.offsets.offsets import NO_EXPIRY, CommittedOffset
from rotunda.broker.coordinator.offsets.repeated_records import NumberedValue, RepeatedRecords
from rotunda.broker.protocol.primitives import INT64
from rotunda.broker.records.record_batch import read_header
from rotunda.broker.records.record_reader import iterate_records
from rotunda.broker.records.record_writer import BatchBuilder
from tests.support.feeds import random_seed
from tests.support.record_batches import TIMESTAMP_MS

Response = Callable[[int, int, int], None]


class Appends:
    """The batches staged by a log; the test completes them."""

    def __init__(self) -> None:
        self.staged: list[tuple[memoryview, Response]] = []
        #: Errors with which the next batches are rejected immediately.
        self.rejections: list[int] = []
        self.log = CoordinatorLog("__consumer_offsets", 3, self.append, lambda: 1_000)

    def append(self, batch: memoryview, answer: Response) -> None:
        if self.rejections:
            answer(self.rejections.pop(), -1, -1)
        else:
            self.staged.append((batch, answer))

    def answer(self, error: int = 0) -> None:
        staged, self.staged = self.staged, []
        for _, answer in staged:
            answer(error, 0, -1)

    def keys(self) -> list[list[bytes | None]]:
        return [[record.key for record in iterate_records(batch)] for batch, _ in self.staged]


def test_calls_of_one_run_share_a_batch_and_return_at_its_commit() -> None:
    reported: list[tuple[str, int]] = []
    appends = Appends()
    assert not appends.log.flush()
    appends.log.append([(b"a", b"1"), (b"b", None)], lambda error: reported.append(("first", error)))
    appends.log.append([(b"c", b"2")], lambda error: reported.append(("second", error)))
    assert appends.log.flush()
    assert appends.keys() == [[b"a", b"b", b"c"]]
    assert [record.value for record in iterate_records(appends.staged[0][0])] == [b"1", None, b"2"]
    assert not reported
    appends.answer()
    assert reported == [("first", 0), ("second", 0)]
    assert not appends.log.flush()


def test_records_of_a_transaction_have_a_batch_of_their_own_in_their_place() -> None:
    appends = Appends()
    appends.log.append([(b"a", b"")], lambda _: None)
    appends.log.append([(b"b", b"")], lambda _: None, (77, 3))
    appends.log.append([(b"c", b"")], lambda _: None)
    appends.log.flush()
    assert appends.keys() == [[b"a"], [b"b"], [b"c"]]
    headers = [read_header(batch) for batch, _ in appends.staged]
    assert [(h.producer_id, h.producer_epoch, h.is_transactional) for h in headers if h is not None] == [
        (-1, -1, False),
        (77, 3, True),
        (-1, -1, False),
    ]


def test_a_batch_ends_before_it_is_too_large_and_never_inside_a_call() -> None:
    appends = Appends()
    half = bytes(BATCH_BYTES // 2)
    for key in (b"a", b"b", b"c"):
        appends.log.append([(key, half), (key + b"2", b"")], lambda _: None)
    appends.log.append([(b"d", bytes(2 * BATCH_BYTES)), (b"d2", b"")], lambda _: None)
    appends.log.flush()
    assert appends.keys() == [[b"a", b"a2"], [b"b", b"b2"], [b"c", b"c2"], [b"d", b"d2"]]


def repeated(key: bytes, rest: int = 0) -> RepeatedRecords:
    return RepeatedRecords([(key, NumberedValue(b"", bytes(rest), b""))])


def test_each_callback_runs_once_with_the_true_result() -> None:
    """Random sequences of patient and urgent calls, failures, append results, and the closing of the partition."""
    seed = random_seed()
    print(f"seed {seed}")
    choice = random.Random(seed)
    for _ in range(300):
        Course(choice).run()


class Course:
    """One log, and the callbacks that have run."""

    def __init__(self, choice: random.Random) -> None:
        self.choice = choice
        self.appends = Appends()
        self.log = self.appends.log
        self.log.send_commits = self.send_commits
        self.log.on_failure = lambda: self.failures.append(True)
        self.dirty = 0
        self.log.on_dirty = self.on_dirty
        self.failures: list[bool] = []
        self.completed: Counter[int] = Counter()
        self.waits = 0
        self.appended: list[int] = []
        #: The keys of the written records.
        self.standing: set[int] = set()
        self.is_closed = False

    def on_dirty(self, log: CoordinatorLog) -> None:
        assert log is self.log
        self.dirty += 1

    def send_commits(self, committers: list[int], error: int) -> None:
        for committer in committers:
            self.tell(committer, error)

    def tell(self, number: int, error: int) -> None:
        self.completed[number] += 1
        assert error == (16 if self.is_closed else 15 if self.log.has_failed else 0)
        assert error or number in self.standing or number not in self.appended
        if self.choice.random() < 0.1 and not self.is_closed:
            self.call()

    def call(self) -> None:
        number = self.waits
        self.waits += 1
        what = self.choice.random()
        key = b"%d" % number
        if what < 0.3:
            before = list(self.appended)

            def committed(error: int) -> None:
                assert error or self.standing.issuperset(before)
                self.tell(number, error)

            self.log.when_committed(committed)
            return
        size = self.choice.choice((1, 1, BATCH_BYTES // 2, 2 * BATCH_BYTES))
        self.appended.append(number)
        if what < 0.6:
            self.log.append_repeated(repeated(key, size), [1], 2, number)
        else:
            producer = self.choice.choice(((-1, -1), (-1, -1), (7, 0)))
            patient = self.choice.random() < 0.5
            records = [(key, bytes(size))]
            self.log.append(records, lambda error: self.tell(number, error), producer, patient=patient)
            assert patient or self.log.is_urgent

    def settle(self, error: int = 0) -> None:
        staged, self.appends.staged = self.appends.staged, []
        for batch, answer in staged:
            keys = [int(record.key or b"") for record in iterate_records(batch)]
            assert all(self.completed[key] == self.is_closed for key in keys)
            if not error:
                self.standing.update(keys)
            answer(error, 0, -1)
            assert all(self.completed[key] == 1 for key in keys)

    def run(self) -> None:
        for _ in range(self.choice.randrange(1, 25)):
            what = self.choice.random()
            if what < 0.6:
                self.call()
            elif what < 0.8:
                if self.choice.random() < 0.1:
                    self.appends.rejections = [10] * self.choice.randint(1, 2)
                # on_dirty has run if and only if flush has records to write.
                is_dirty, self.dirty = bool(self.dirty), 0
                assert self.log.flush() == is_dirty
                self.appends.rejections = []
            else:
                self.settle(self.choice.choice((0, 0, 56)))
        self.is_closed = self.choice.random() < 0.5
        if self.is_closed:
            self.log.give_up(16)
            self.settle(self.choice.choice((0, 56)))
        else:
            self.settle()
            while self.log.flush():
                self.settle()
        assert self.completed == Counter(range(self.waits))
        assert self.log.has_failed == bool(self.failures)
        assert not self.log.flush()


def test_a_fault_in_one_callback_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    reported: list[int] = []

    def fault(error: int) -> None:
        raise ZeroDivisionError(f"ours {error}")

    appends = Appends()
    for done in (reported.append, fault, reported.append):
        appends.log.append([(b"a", b"1")], done)
    appends.log.append([(b"b", b"1")], reported.append, (77, 3))
    appends.log.flush()
    appends.answer()
    assert reported == [0, 0, 0]
    assert "ours 0" in caplog.text


def test_a_fault_at_one_batch_fails_the_log_and_leaves_nobody_waiting(caplog: pytest.LogCaptureFixture) -> None:
    """Memory is ahead of the log: it must be reloaded, as after a failed write."""
    reported: list[int] = []
    failures: list[bool] = []

    def fault(batch: memoryview, answer: Response) -> None:
        raise ZeroDivisionError(f"ours {batch} {answer}")

    log = CoordinatorLog("__consumer_offsets", 3, fault, lambda: 1_000)
    log.on_failure = lambda: failures.append(True)
    for producer in ((-1, -1), (77, 3)):
        log.append([(b"a", b"1")], reported.append, producer)
    log.flush()
    assert reported == [15, 15]
    assert log.has_failed
    assert failures
    assert "ours" in caplog.text


# ---- commits that wait for others ------------------------------------------------------------------------------------


MS = 1_000_000


def commit(linger: CommitBatcher, connections: int) -> None:
    for connection in range(connections):
        linger.connections.add(connection)


def test_few_never_wait_however_often_they_commit() -> None:
    linger = CommitBatcher(lambda: 5)
    for now_ms in range(100):
        linger.run_once(now_ms * MS)
        assert linger.is_over
        for _ in range(1000):
            commit(linger, MANY_CONNECTIONS - 1)


def test_after_many_the_next_window_collects_until_there_are_few() -> None:
    linger = CommitBatcher(lambda: 5)
    linger.run_once(100 * MS)
    commit(linger, MANY_CONNECTIONS)
    linger.run_once(104 * MS)
    assert linger.is_over, "no wait before there are many commits"
    linger.run_once(105 * MS)
    assert linger.is_over, "a window's end"
    commit(linger, MANY_CONNECTIONS - 1)
    for now_ms in (106, 109):
        linger.run_once(now_ms * MS)
        assert not linger.is_over
    assert linger.end_ns == 110 * MS
    linger.run_once(110 * MS)
    assert linger.is_over
    linger.run_once(111 * MS)
    assert linger.is_over, "they were few in the window before"


@pytest.mark.parametrize("linger_ms", [0, -1])
def test_without_a_length_nothing_waits(linger_ms: int) -> None:
    linger = CommitBatcher(lambda: linger_ms)
    for now_ms in range(10):
        linger.run_once(now_ms * MS)
        commit(linger, 1000)
        assert linger.is_over


# ---- records from a template -----------------------------------------------------------------------------------------


#: Around these an offset delta gets longer.
BORDERS = (0, 63, 64, 8191, 8192)


def some_records(numbers: random.Random) -> list[tuple[bytes, NumberedValue]]:
    def text() -> bytes:
        return numbers.randbytes(numbers.choice((0, 1, 30, 63, 64, 200)))

    return [(text(), NumberedValue(text(), text(), text())) for _ in range(numbers.randint(1, 5))]


def test_a_batch_is_the_same_as_of_records_encoded_one_by_one() -> None:
    seed = random_seed()
    print(f"seed {seed}")
    numbers = random.Random(seed)
    for border in BORDERS:
        for before in range(max(0, border - 6), border + 2):
            records = some_records(numbers)
            firsts = [numbers.randrange(2**63) for _ in records]
            second = numbers.randrange(2**63)
            others = [(b"%d" % number, b"") for number in range(before)]
            repeated = RepeatedRecords(records)
            builder = BatchBuilder()
            for key, value in others:
                builder.add(key, value)
            encoded = repeated.encode(builder.count, firsts, second)
            builder.add_encoded(encoded, repeated.count)
            assert abs(len(encoded) - repeated.size_bytes) <= 8 * len(records)
            whole = [
                (key, b"".join((head, INT64.pack(first), middle, INT64.pack(second), tail)))
                for (key, (head, middle, tail)), first in zip(records, firsts, strict=True)
            ]
            built = builder.build(TIMESTAMP_MS)
            assert built == BatchBuilder([*others, *whole]).build(TIMESTAMP_MS)
            assert [(each.key, each.value) for each in iterate_records(built)] == [*others, *whole]


def test_an_offset_is_written_as_kafka_writes_it() -> None:
    seed = random_seed()
    print(f"seed {seed}")
    numbers = random.Random(seed)
    for topic_id in (bytes(16), numbers.randbytes(16)):
        for metadata in ("", "grün", "x" * 126, "x" * 127, "x" * 300, "ü" * 4096):
            committed = CommittedOffset(7, numbers.randrange(-1, 9), metadata, TIMESTAMP_MS, NO_EXPIRY, topic_id)
            value = numbered_offset_value(committed.leader_epoch, metadata, topic_id).with_numbers(7, TIMESTAMP_MS)
            assert value == offset_value(committed)
            read = OFFSET_COMMIT.read_value(value)
            assert (read.offset, read.leader_epoch, read.metadata, read.commit_timestamp, read.topic_id) == (
                *committed[:4],
                topic_id,
            )
