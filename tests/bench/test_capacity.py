"""The load of `ops/bench --capacity`, and its measure of a prediction's error."""

import itertools
from pathlib import Path

import pytest

from ops.benchmarks.capacity import CONNECTIONS, Load, Turn, figures, poisson_profile
from rotunda.broker.bench.profile import read


def test_a_profile_has_the_rate_that_it_is_to_have_and_gaps_of_any_length(tmp_path: Path) -> None:
    events = read(poisson_profile(tmp_path / "profile.parquet", 500, 20.0))
    assert len(events) == pytest.approx(10_000, rel=0.05)
    assert {event.connection for event in events} == set(range(CONNECTIONS))
    gaps = [later.atUs - event.atUs for event, later in itertools.pairwise(events)]
    mean = sum(gaps) / len(gaps)
    assert sum((gap - mean) ** 2 for gap in gaps) / len(gaps) == pytest.approx(mean * mean, rel=0.1)


def test_errors_are_those_of_the_prediction_and_of_each_turn() -> None:
    def load(handler: float, wait_us: float | None) -> Load:
        return Load({"handler": handler, "processor": 0.5}, wait_us)

    turns = [
        Turn(load(0.1, 100), load(0.2, 300), load(0.25, 200)),
        Turn(load(0.2, 100), load(0.4, None), load(0.4, 200)),
    ]
    handlers, processors, waits = figures(1500, turns)
    assert handlers == ["1,500", "handlers busy", "15.0%", "30.0%", "32.5%", "-10%", "-20%, +0%"]
    assert processors[-2:] == ["+0%", "+0%, +0%"]
    assert waits == ["1,500", "mean wait for a handler, µs", "100", "300", "200", "+50%", "+50%, -"]
