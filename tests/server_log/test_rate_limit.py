"""The limit of the log: a place in the code writes a burst and then a little, and nothing is held back uncounted."""

import io
import logging
import threading

import pytest

from rotunda.broker.server_log import log_setup
from rotunda.broker.server_log.rate_limit import BURST_BYTES, BYTES_PER_SECOND, UNLIMITED

logger = logging.getLogger("broker.limited")
LINES = 20_000


class Clock:
    """A clock set by the test."""

    now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(clock: Clock) -> io.StringIO:
    """Return the log of a process whose clock the test sets."""
    stream = io.StringIO()
    log_setup.configure("handler", 0, stream=stream, now_ns=clock.monotonic_ns)
    return stream


def caused_by_a_client(number: int) -> None:
    logger.info("topic %d now has other settings", number)


def test_a_place_writes_a_burst_and_then_a_little(log: io.StringIO, clock: Clock) -> None:
    for number in range(LINES):
        caused_by_a_client(number)
    first = log.getvalue()
    assert BURST_BYTES <= len(first) < BURST_BYTES + 200
    for second in range(1000):
        clock.now_ns = second * 1_000_000_000
        for number in range(20):
            caused_by_a_client(number)
    assert len(log.getvalue()) - len(first) < 1000 * BYTES_PER_SECOND + 300


def test_what_was_held_back_is_counted_to_the_line(log: io.StringIO, clock: Clock) -> None:
    for number in range(LINES):
        caused_by_a_client(number)
    written = log.getvalue().count("\n")
    clock.now_ns = 3_600_000_000_000
    caused_by_a_client(7)
    last = log.getvalue().splitlines()[-1]
    assert last.endswith(f"topic 7 now has other settings ({LINES - written} more like it since the last such line)")


def test_the_count_comes_by_itself_when_no_other_line_does(log: io.StringIO, clock: Clock) -> None:
    for number in range(LINES):
        caused_by_a_client(number)
    written = log.getvalue().count("\n")
    log_setup.report_held_back()
    assert log.getvalue().count("\n") == written
    clock.now_ns = 10_000_000_000
    log_setup.report_held_back()
    log_setup.report_held_back()
    assert log.getvalue().count("\n") == written + 1
    expected = f"suppressed {LINES - written:,} more lines that began with: topic %d now has other settings"
    assert log.getvalue().splitlines()[-1].endswith(expected)


def test_a_process_that_ends_counts_what_it_held_back(log: io.StringIO) -> None:
    for number in range(LINES):
        caused_by_a_client(number)
    written = log.getvalue().count("\n")
    log_setup.report_held_back(at_last=True)
    assert log.getvalue().count("\n") == written + 1


def test_a_flood_hides_no_other_line(log: io.StringIO) -> None:
    for number in range(LINES):
        caused_by_a_client(number)
    logger.info("another place")
    assert "another place" in log.getvalue()


def test_tracebacks_count_by_their_length_and_cost_nothing_when_held_back(log: io.StringIO) -> None:
    texts = 0

    class FaultError(Exception):
        def __str__(self) -> str:
            nonlocal texts
            texts += 1
            return "why " * 100

    # The test's own capture, which has no limit, would make a text of each.
    logger.propagate, logger.handlers[:] = False, logging.getLogger().handlers[:1]
    try:
        for _ in range(1000):
            try:
                raise FaultError
            except FaultError:
                logger.exception("a request failed")
    finally:
        logger.propagate, logger.handlers[:] = True, []
    assert len(log.getvalue()) < BURST_BYTES + log_setup.MOST_CHARACTERS
    assert texts == log.getvalue().count("\n") < 100


def test_a_line_has_a_greatest_length(log: io.StringIO) -> None:
    logger.warning("a name: %s", "x" * 100_000)
    assert len(log.getvalue()) < log_setup.MOST_CHARACTERS + 200
    assert "more characters)" in log.getvalue()


def test_what_no_client_can_cause_is_written_always(log: io.StringIO) -> None:
    for number in range(1000):
        logger.info("%d %s", number, "x" * 100, extra=UNLIMITED)
        logger.critical("%d %s", number, "x" * 100)
    assert log.getvalue().count("\n") == 2000


def test_a_fault_in_a_thread_is_one_line(log: io.StringIO) -> None:
    thread = threading.Thread(target=lambda: int("x"))
    thread.start()
    thread.join()
    assert log.getvalue().count("\n") == 1
    assert "ValueError" in log.getvalue()
