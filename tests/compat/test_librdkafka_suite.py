"""Verdicts of librdkafka's tests: only a test that ran to its end and passed has passed."""

from ops.compatibility.clients import by_key
from ops.compatibility.librdkafka_suite import LIMIT_SECONDS, SUITES, reason

PASSED = """
TEST 20261121132650 (bare, scenario default) SUMMARY
#==================================================================#
|\x1b[32m <MAIN>                                   |     PASSED |  13.006s \x1b[0m|
|\x1b[32m 0118_commit_rebalance                    |     PASSED |  12.006s \x1b[0m|
|\x1b[36m 0022_consume_batch_local                 |    SKIPPED |   0.000s \x1b[0m|\x1b[36m Filtered \x1b[0m
#==================================================================#
"""
FAILED = """
\x1b[36m[0011_produce_batch          /  3.371s] TEST FAILURE
\x1b[31m### Test "0011_produce_batch (part:629)" failed at 0011-produce_batch.c:718:part() at Sat Nov 21 13:13:59: ###
Test assertion failed: "invalid_record_fail_cnt == 10":
\x1b[36m[<MAIN>                      /  3.409s] TEST FAILURE
\x1b[31m### Test "<MAIN>" failed at test.c:1950:test_wait_exit() at Sat Nov 21 13:14:01 2026: ###
3 thread(s) still active in librdkafka
"""


def test_a_test_that_passed() -> None:
    assert reason("0118_commit_rebalance", PASSED, 0) == ""


def test_a_subtest_that_passed() -> None:
    line = "\x1b[36m[0081_admin   /  0.2s] \x1b[32m[ do_test_DescribeAcls:1720: temp queue: PASS (0.20s) ]\x1b[0m\n"
    assert reason("0118_commit_rebalance/do_test_DescribeAcls", line + PASSED, 0) == ""


def test_a_test_that_failed_says_where() -> None:
    assert reason("0011_produce_batch", FAILED, -6) == (
        '0011_produce_batch (part:629)" failed at 0011-produce_batch.c:718:part(): '
        'Test assertion failed: "invalid_record_fail_cnt == 10":'
    )


def test_nothing_but_passed_is_passed() -> None:
    assert reason("0118_commit_rebalance", PASSED, 1) == "status 1, PASSED"
    assert reason("0022_consume_batch_local", PASSED, 0) == "skipped: Filtered"
    assert reason("0011_produce_batch", PASSED, 0) == "status 0, no summary"
    assert reason("0118_commit_rebalance/part", PASSED, 0) == "no such subtest was run"
    assert reason("0118_commit_rebalance", "", None) == "killed after its time"


def test_no_test_outlives_its_suite() -> None:
    """users.md row 7: the four tests that a release needs are gates of their own."""
    for key in ("librdkafka", "librdkafka-killed", "librdkafka-848", "librdkafka-share", "librdkafka-topics"):
        assert by_key(key).limit_seconds > LIMIT_SECONDS
    assert {gate[:4] for gate in SUITES["classic"].gates} >= {"0091", "0093", "0118", "0130"}
    for suite in SUITES.values():
        assert not set(suite.gates) & set(suite.others)
