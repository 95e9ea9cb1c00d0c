"""Error budgets: how fast bad requests use up an objective's budget, and the remaining share.

Pure arithmetic on counts. After the chapter "Alerting on SLOs" of Google's Site Reliability Workbook: a burn rate of 1
uses up the budget exactly within the objective's window. An alert needs a long window to be significant, and a short
one to end with the incident: 2 % of the budget in an hour or 5 % in six pages somebody, 10 % in three days can wait for
the morning. For a window of 30 days those are burn rates of 14.4, 6 and 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rotunda.spark.analysis.objectives import Objective

MINUTE_US = 60_000_000
#: Spans counted back from the end of the range, shortest first.
SPANS_US = {
    "5m": 5 * MINUTE_US,
    "30m": 30 * MINUTE_US,
    "1h": 60 * MINUTE_US,
    "6h": 360 * MINUTE_US,
    "3d": 3 * 1440 * MINUTE_US,
}
#: State, the excessive share of the budget within the long window, the long window and the short one.
_ALERTS = (("page", 0.02, "1h", "5m"), ("page", 0.05, "6h", "30m"), ("ticket", 0.10, "3d", "6h"))


class Count(NamedTuple):
    """Requests of an objective, and the number of bad ones."""

    requests: int
    bad: int


@dataclass(frozen=True, slots=True)
class Standing:
    """The status of an objective: burn rates by span (None: the range is shorter, or has no requests in it).

    `left` is the remaining share of the budget, below 0 when it is exceeded; `exhausted_in_s` is the time until it is
    used up at the present burn rate, None if that does not happen. `state` is exhausted, page, ticket, burning (none of
    these, but faster than the budget lasts) or ok.
    """

    burn_rates: Mapping[str, float | None]
    left: float
    exhausted_in_s: float | None
    state: str


def burn_rate(objective: Objective, count: Count) -> float | None:
    """Return the rate of budget use, relative to the allowed rate; None without requests."""
    return count.bad / count.requests / objective.budget if count.requests else None


def standing(
    objective: Objective, counts: Mapping[str, Count], measured: Count, range_us: int, measured_us: int | None = None
) -> Standing:
    """Return the status of an objective: `counts` by span, `measured` those of its window as far as it is known.

    `range_us` is the contiguous known time before the end, `measured_us` the known part of the window (as far as the
    range reaches, unless it is given). The rest of the window is assumed to have the same request rate and no bad
    requests.
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
