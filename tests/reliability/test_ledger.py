"""The ledger detects each fault: every test does one wrong to a topic, and one counter must show it."""

import time

from ops.clients.library import ACKNOWLEDGED
from ops.reliability.ledger import ABORTED, FAILED, Ledger, Reading, Tally
from ops.reliability.share_groups import ShareLedger


def written(*outcomes: int, is_exact: bool = True) -> Reading:
    """Return a reading of a topic with one partition whose records had these outcomes, nothing read yet."""
    ledger = Ledger(1, is_exact)
    for outcome in outcomes:
        ledger.settle(0, ledger.send(0), outcome)
    return Reading(ledger)


def read(reading: Reading, *records: tuple[int, int]) -> Tally:
    """Read records, given as offset and number, and evaluate at the end."""
    for offset, number in records:
        reading.take(0, offset, b"%d ..." % number)
    return reading.judge(at_end=True)


def wrongs(tally: Tally) -> dict[str, int]:
    names = ("lost", "twice", "out_of_order", "misplaced", "aborted_seen", "torn")
    return {name: getattr(tally, name) for name in names if getattr(tally, name)}


def test_what_is_as_it_should_be() -> None:
    reading = written(0, 2, ACKNOWLEDGED, FAILED, ABORTED)
    assert wrongs(read(reading, (0, 0), (2, 1), (3, 2))) == {}
    assert reading.has_everything()


def test_a_record_that_failed_may_be_there_or_not() -> None:
    assert wrongs(read(written(0, FAILED), (0, 0), (1, 1))) == {}


def test_an_acknowledged_record_is_missing() -> None:
    reading = written(0, 1, 2)
    assert wrongs(read(reading, (0, 0), (2, 2))) == {"lost": 1}
    assert not reading.has_everything()


def test_before_the_end_only_what_was_passed_by_is_lost() -> None:
    reading = written(0, 1, 2)
    reading.take(0, 1, b"1")
    assert reading.judge(at_end=False).lost == 1


def test_a_record_comes_twice() -> None:
    assert wrongs(read(written(0, 1), (0, 0), (1, 1), (2, 1))) == {"twice": 1}


def test_a_plain_client_that_sends_again_is_not_the_brokers_fault() -> None:
    tally = read(written(0, 1, is_exact=False), (0, 0), (1, 1), (2, 1))
    assert (wrongs(tally), tally.repeated_by_client) == ({}, 1)


def test_records_have_changed_places() -> None:
    assert wrongs(read(written(ACKNOWLEDGED, ACKNOWLEDGED), (0, 1), (1, 0))) == {"out_of_order": 1}


def test_a_record_stands_elsewhere_than_promised() -> None:
    assert wrongs(read(written(0, 1), (0, 0), (5, 1))) == {"misplaced": 1}


def test_a_record_that_nobody_wrote() -> None:
    reading = written(0)
    reading.take(0, 0, b"0")
    reading.take(0, 1, b"never")
    assert wrongs(reading.judge(at_end=True)) == {"misplaced": 1}


def test_offsets_go_back() -> None:
    assert wrongs(read(written(ACKNOWLEDGED, ACKNOWLEDGED), (5, 0), (4, 1)))["misplaced"] == 1


def test_an_aborted_record_is_seen() -> None:
    assert wrongs(read(written(0, ABORTED), (0, 0), (1, 1))) == {"aborted_seen": 1}


def test_a_transaction_whose_end_is_unknown_is_there_wholly_or_not_at_all() -> None:
    for seen, torn in (((), 0), ((0, 1), 0), ((1,), 1)):
        ledger = Ledger(1)
        ledger.leave_undecided([(0, ledger.send(0)), (0, ledger.send(0))])
        tally = read(Reading(ledger), *[(number, number) for number in seen])
        assert tally.torn == torn


def test_tallies_add() -> None:
    first, second = Tally(read=1, longest_pause_seconds=2.0), Tally(read=3, lost=1, longest_pause_seconds=1.0)
    second.errors["closed"] = 2
    total = first + second
    assert (total.read, total.lost, total.faults, total.longest_pause_seconds) == (4, 1, 1, 2.0)
    assert total.errors == {"closed": 2}


def test_a_share_group_gets_a_record_again() -> None:
    ledger = ShareLedger(1)
    ledger.deliver(0, 0, 1, 1, time.monotonic())
    ledger.doubt(0, 0)
    ledger.end(0, 0)
    ledger.deliver(0, 1, 1, 2, time.monotonic() + 1)
    assert (ledger.redelivered, ledger.twice) == (1, 0)
    ledger.deliver(0, 0, 0, 2, time.monotonic() + 1)
    assert (ledger.redelivered, ledger.twice) == (2, 1)
    # Two of three are neither accepted nor rejected: one was never delivered.
    assert ledger.open_below({0: 3}) == 2


def test_a_delivery_count_rises_after_a_release() -> None:
    ledger = ShareLedger(1)
    ledger.deliver(0, 0, 0, 2, time.monotonic())
    ledger.release(0, 0, 2)
    ledger.deliver(0, 0, 0, 3, time.monotonic() + 1)
    assert ledger.miscounted == 0
    ledger.deliver(0, 0, 0, 2, time.monotonic() + 1)
    assert ledger.miscounted == 1
