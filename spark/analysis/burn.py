"""Error budgets: how fast bad requests use up what an objective allows, and what is left.

Pure arithmetic on counts. After the chapter "Alerting on SLOs" of Google's Site Reliability Workbook: a burn rate of 1
uses up the budget exactly within the objective's window. An alert wants a long window, so that it means something, and
a short one, so that it ends when the trouble does: 2 % of the budget in an hour or 5 % in six wake somebody, 10 % in
three days can wait for the morning. For a window of 30 days those are burn rates of 14.4, 6 and 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rotunda.spark.analysis.objectives import Objective

MINUTE_US = 60_000_000
#: Back from the end of the range, shortest first.
SPANS_US = {
    "5m": 5 * MINUTE_US,
    "30m": 30 * MINUTE_US,
    "1h": 60 * MINUTE_US,
    "6h": 360 * MINUTE_US,
    "3d": 3 * 1440 * MINUTE_US,
}
#: State, the share of the budget used up within the long window that is too much, the long window and the short one.
_ALERTS = (("page", 0.02, "1h", "5m"), ("page", 0.05, "6h", "30m"), ("ticket", 0.10, "3d", "6h"))


class Count(NamedTuple):
    """Requests that an objective is about, and how many of them were bad."""

    requests: int
    bad: int


@dataclass(frozen=True, slots=True)
class Standing:
    """How an objective stands: burn rates by span (None: the range is shorter, or nothing was asked in it).

    `left` is the share of the budget that is left, below 0 when more was used; `exhausted_in_s` is when it will have
    gone at the present burn rate, None if it will not. `state` is exhausted, page, ticket, burning (none of these, but
    faster than the budget lasts) or ok.
    """

    burn_rates: Mapping[str, float | None]
    left: float
    exhausted_in_s: float | None
    state: str


def burn_rate(objective: Objective, count: Count) -> float | None:
    """Return how many times faster than allowed the budget is used up; None when nothing was asked."""
    return count.bad / count.requests / objective.budget if count.requests else None


def standing(
    objective: Objective, counts: Mapping[str, Count], measured: Count, range_us: int, measured_us: int | None = None
) -> Standing:
    """Return how an objective stands: `counts` by span, `measured` those of its window as far as that is known.

    `range_us` is how far back everything is known, `measured_us` how much of the window (as far as the range reaches,
    unless it is given). For the rest of the window it is assumed that as much was asked, and nothing of it was bad.
    """
    rates = {name: burn_rate(objective, counts[name]) if span <= range_us else None for name, span in SPANS_US.items()}
    used = burn_rate(objective, measured) or 0.0
    known_us = min(range_us, objective.window_us) if measured_us is None else measured_us
    left = 1 - used * known_us / objective.window_us
    recent = [rate for name in ("1h", "30m", "5m") if (rate := rates[name]) is not None]
    present = recent[0] if recent else used
    exhausted = None if present == 0 else left * objective.window_us / present / 1e6
    return Standing(rates, left, 0.0 if left <= 0 else exhausted, _state(objective, rates, used, left))


def _state(objective: Objective, rates: Mapping[str, float | None], used: float, left: float) -> str:
    if left <= 0:
        return "exhausted"
    for state, share, long, short in _ALERTS:
        too_fast = share * objective.window_us / SPANS_US[long]
        if objective.window_us >= SPANS_US[long] and all((rates[name] or 0) > too_fast for name in (long, short)):
            return state
    return "burning" if used > 1 else "ok"
