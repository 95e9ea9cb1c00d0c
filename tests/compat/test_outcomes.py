"""How the words of client programs are read: nothing that was meant to run may be lost."""

from ops.compatibility.outcomes import Outcome, Verdict, of_go_tests, of_lines

GO_OUTPUT = """=== RUN   TestGroupETL
=== RUN   TestGroupETL/range
=== RUN   TestGroupETL/sticky
=== RUN   TestPing
=== RUN   TestShareGroup
--- PASS: TestPing (0.01s)
--- SKIP: TestShareGroup (0.00s)
--- FAIL: TestGroupETL (3.00s)
    --- PASS: TestGroupETL/range (1.00s)
    --- FAIL: TestGroupETL/sticky (2.00s)
FAIL
"""


def test_a_feature_that_was_planned_and_never_ended_has_failed() -> None:
    outcomes = of_lines("planned\ta\t\nplanned\tb\t\npassed\ta\t\n", "it broke", 3)
    assert outcomes[0] == Outcome("a", Verdict.PASSED)
    assert outcomes[1].verdict is Verdict.FAILED
    assert "status 3: it broke" in outcomes[1].detail


def test_a_program_that_says_nothing_has_failed() -> None:
    (outcome,) = of_lines("", "no such class", 1)
    assert outcome.verdict is Verdict.FAILED
    assert "no such class" in outcome.detail


def test_a_program_that_was_killed_is_named_so() -> None:
    outcomes = of_lines("planned\ta\t\n", "", None)
    assert "killed" in outcomes[0].detail


def test_what_went_wrong_is_kept() -> None:
    assert of_lines("failed\ta\tit is 3, not 4\n", "", 0) == [Outcome("a", Verdict.FAILED, "it is 3, not 4")]


def test_go_gates_are_shown_one_by_one_and_the_others_together() -> None:
    outcomes = {outcome.feature: outcome.verdict for outcome in of_go_tests(GO_OUTPUT, 1, ("TestGroupETL",))}
    assert outcomes == {
        "TestGroupETL/range": Verdict.PASSED,
        "TestGroupETL/sticky": Verdict.FAILED,
        "the other tests of its suite": Verdict.PASSED,
    }


def test_a_go_test_that_was_cut_short_has_failed() -> None:
    (outcome,) = of_go_tests("=== RUN   TestGroupETL/range\npanic: test timed out", 2, ("TestGroupETL",))
    assert outcome.verdict is Verdict.FAILED
    assert "timed out" in outcome.detail


def test_a_go_suite_that_ends_badly_without_a_failed_test_has_failed() -> None:
    outcomes = of_go_tests("--- PASS: TestPing (0.01s)\npanic: afterwards", 2, ())
    assert [outcome.verdict for outcome in outcomes] == [Verdict.PASSED, Verdict.FAILED]
