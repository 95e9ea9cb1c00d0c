"""SamplingBudget: all rows at low rates and in a short burst; beyond that the allowed number, evenly spread."""

from rotunda.broker.network.accounting.sampling_budget import SamplingBudget

S = 1_000_000_000
PER_SECOND = 1000


def sent(allowance: SamplingBudget, start_ns: int, seconds: int, rows_per_turn: int) -> tuple[float, list[int]]:
    """Return (rows sent, the intervals) for this number of rows ten times a second."""
    intervals = [
        allowance.interval(rows_per_turn, start_ns + turn * S // 10, PER_SECOND) for turn in range(seconds * 10)
    ]
    return sum(rows_per_turn / interval for interval in intervals), intervals


def test_all_are_sent_at_the_rate_that_is_allowed() -> None:
    assert sent(SamplingBudget(), S, 60, PER_SECOND // 10)[1] == [1] * 600


def test_a_burst_is_sent_whole_and_then_as_many_as_are_allowed() -> None:
    allowance = SamplingBudget()
    total, intervals = sent(allowance, S, 20, PER_SECOND)
    assert intervals[0] == 1
    assert set(intervals[2:]) == {10}
    assert total <= PER_SECOND * 21
    # A second without rows refills the bucket, and no more than that.
    assert sent(allowance, 30 * S, 1, PER_SECOND)[1][:2] == [1, 10]


def test_without_a_limit_all_are_sent_however_many() -> None:
    allowance = SamplingBudget()
    assert {allowance.interval(10**6, S, 0) for _ in range(10)} == {1}


def test_a_clock_that_stops_or_runs_backwards_allows_nothing_more() -> None:
    allowance = SamplingBudget()
    assert allowance.interval(PER_SECOND, 10 * S, PER_SECOND) == 1
    assert allowance.interval(PER_SECOND, 10 * S, PER_SECOND) == PER_SECOND
    assert allowance.interval(PER_SECOND, 5 * S, PER_SECOND) == PER_SECOND
