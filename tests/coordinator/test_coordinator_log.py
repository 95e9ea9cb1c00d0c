"""CoordinatorLog: records of a turn share batches, those of one call stay together, and everybody is told once."""

from collections.abc import Callable

from broker.coordinator.coordinator_log import BATCH_BYTES, CoordinatorLog
from broker.protocol.record_reader import iterate_records
from broker.protocol.records import read_header

Answer = Callable[[int, int, int], None]


class Appends:
    """What a log staged, to be answered by hand."""

    def __init__(self) -> None:
        self.staged: list[tuple[memoryview, Answer]] = []
        self.log = CoordinatorLog("__consumer_offsets", 3, self.append, lambda: 1_000)

    def append(self, batch: memoryview, answer: Answer) -> None:
        self.staged.append((batch, answer))

    def answer(self, error: int = 0) -> None:
        staged, self.staged = self.staged, []
        for _, answer in staged:
            answer(error, 0, -1)

    def keys(self) -> list[list[bytes | None]]:
        return [[record.key for record in iterate_records(batch)] for batch, _ in self.staged]


def test_calls_of_one_turn_share_a_batch_and_are_told_at_its_commit() -> None:
    told: list[tuple[str, int]] = []
    appends = Appends()
    assert not appends.log.flush()
    appends.log.append([(b"a", b"1"), (b"b", None)], lambda error: told.append(("first", error)))
    appends.log.append([(b"c", b"2")], lambda error: told.append(("second", error)))
    assert appends.log.flush()
    assert appends.keys() == [[b"a", b"b", b"c"]]
    assert [record.value for record in iterate_records(appends.staged[0][0])] == [b"1", None, b"2"]
    assert not told
    appends.answer()
    assert told == [("first", 0), ("second", 0)]
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


def test_a_failed_write_is_told_to_everybody_and_to_the_owner_of_the_log() -> None:
    told: list[int] = []
    failures: list[bool] = []
    appends = Appends()
    appends.log.on_failure = lambda: failures.append(True)
    appends.log.append([(b"a", b"")], told.append)
    appends.log.append([(b"b", b"")], told.append)
    appends.log.flush()
    appends.answer(56)
    assert told == [15, 15]
    assert appends.log.has_failed
    assert failures == [True]


def test_what_an_answer_appends_waits_for_the_next_flush() -> None:
    appends = Appends()
    appends.log.append([(b"a", b"")], lambda _: appends.log.append([(b"b", b"")], lambda _: None))
    appends.log.flush()
    appends.answer()
    assert appends.log.flush()
    assert appends.keys() == [[b"b"]]
