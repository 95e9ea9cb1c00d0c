"""Objectives: parsing of the file, errors that name the invalid key, and the arithmetic of budgets."""

from pathlib import Path

import pytest

from rotunda.spark.analysis.burn import SPANS_US, Count, standing
from rotunda.spark.analysis.objectives import Objective, read_objectives
from rotunda.spark.failures import JobFailed
from rotunda.spark.job import main
from rotunda.spark.jobs import slo

SAMPLE = Path(__file__).parents[2] / "ops" / "objectives.toml"
DAY_US = 86_400_000_000
MONTH_US = 30 * DAY_US
LATENCY = 'name = "x"\nlatency = "50ms"\ntarget = 0.99\n'


def test_the_sample_is_valid() -> None:
    quick, _, _, commits = read_objectives(str(SAMPLE))
    assert (quick.latency_us, quick.target, quick.window_us) == (50_000, 0.99, MONTH_US)
    assert commits.chosen == {
        "requestApiKeyName": ("OFFSET_COMMIT", "TXN_OFFSET_COMMIT"),
        "clientId": ("billing",),
    }
    assert (commits.latency_us, commits.budget, commits.window_us) == (None, pytest.approx(0.0001), 7 * DAY_US)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[[objective]", ": invalid TOML: Expected"),
        ("", "no objectives"),
        ("objective = 3", "no objectives"),
        ("objective = []", "no objectives"),
        ("[[objectives]]", "unknown key 'objectives'"),
        (f"[[objective]]\n{LATENCY}[[objective]]\n{LATENCY}", "name: duplicate 'x'"),
        (f"[[objective]]\n{LATENCY}latancy = 1", "objective 1: unknown key 'latancy'; there are name, api,"),
        ('[[objective]]\nlatency = "1s"', "objective 1: name is missing"),
        ('[[objective]]\nname = "x"', "objective 1: latency and error-rate: 'x' needs one of the two"),
        (f"[[objective]]\n{LATENCY}error-rate = 0.1", "objective 1: latency and error-rate: 'x' needs one"),
        ('[[objective]]\nname = "x"\nlatency = "50ms"', "objective 1: target is missing"),
        ('[[objective]]\nname = "x"\nlatency = "50ms"\ntarget = 99', "objective 1: target: 99 is not a fraction"),
        ('[[objective]]\nname = "x"\nlatency = 50\ntarget = 0.9', "objective 1: latency: 50 is not a duration"),
        ('[[objective]]\nname = "x"\nlatency = "0ms"\ntarget = 0.9', "latency: '0ms' is not a duration"),
        ('[[objective]]\nname = "x"\nerror-rate = true', "objective 1: error-rate: True is not a fraction"),
        (f'[[objective]]\n{LATENCY}window = "a month"', "objective 1: window: 'a month' is not a duration"),
        (f'[[objective]]\n{LATENCY}window = "90s"', "objective 1: window: '90s' is not a whole number of minutes"),
        (f"[[objective]]\n{LATENCY}api = []", "objective 1: api: \\[\\] is neither a name nor a list of names"),
        (f"[[objective]]\n{LATENCY}topic = 3", "objective 1: topic: 3 is neither a name nor a list of names"),
        (f'[[objective]]\n{LATENCY}allowed-errors = "x"', "objective 1: allowed-errors needs error-rate"),
    ],
)
def test_a_wrong_file_is_one_line_with_the_key(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "objectives.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(JobFailed, match=complaint) as failed:
        read_objectives(str(path))
    assert str(failed.value).startswith(f"{path}")
    assert "\n" not in str(failed.value)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "none.toml"
    assert main(slo.JOB, ["--input", "log", "--output", "out", "--objectives", str(path)]) == 1
    assert capsys.readouterr().err == f"rotunda report slo: {path} cannot be read: No such file or directory\n"


def month(target: float, latency_us: int | None = None, window_us: int = MONTH_US) -> Objective:
    return Objective("x", target, latency_us, window_us, {})


def test_the_workbooks_own_numbers() -> None:
    """99.9 % over 30 days: an error rate of 1.44 % burns 14.4 times too fast, 2 % of the budget in an hour."""
    bad = dict.fromkeys(SPANS_US, Count(100_000, 1440))
    found = standing(month(0.999), bad, Count(100_000, 1440), SPANS_US["1h"])
    assert found.burn_rates == {
        "5m": pytest.approx(14.4),
        "30m": pytest.approx(14.4),
        "1h": pytest.approx(14.4),
        "6h": None,
        "3d": None,
    }
    assert found.left == pytest.approx(0.98)
    # The rest, 98 % of 30 days at 14.4 times the speed.
    assert found.exhausted_in_s == pytest.approx(0.98 * 30 * 86400 / 14.4)


def test_too_fast_is_burning_as_long_as_no_alert_can_be_judged() -> None:
    counts = dict.fromkeys(SPANS_US, Count(1000, 30))
    assert standing(month(0.99), counts, Count(1000, 30), SPANS_US["5m"]).state == "burning"


@pytest.mark.parametrize(
    ("burning", "state"),
    [
        ({}, "ok"),
        ({"5m": 15, "1h": 15}, "page"),
        ({"1h": 15}, "ok"),
        ({"5m": 15}, "ok"),
        ({"6h": 7, "30m": 7}, "page"),
        ({"6h": 2, "3d": 2}, "ticket"),
    ],
)
def test_an_alert_wants_a_long_window_and_a_short_one(burning: dict[str, int], state: str) -> None:
    counts = {name: Count(100_000, burning.get(name, 0) * 100) for name in SPANS_US}
    assert standing(month(0.999), counts, Count(1_000_000, 10), MONTH_US).state == state


def test_what_was_used_up_is_exhausted_now() -> None:
    counts = dict.fromkeys(SPANS_US, Count(1000, 0))
    found = standing(month(0.999), counts, Count(1000, 2), MONTH_US)
    assert (found.state, found.exhausted_in_s) == ("exhausted", 0.0)
    assert found.left == pytest.approx(-1)


def test_nothing_asked_burns_nothing() -> None:
    found = standing(month(0.999), dict.fromkeys(SPANS_US, Count(0, 0)), Count(0, 0), MONTH_US)
    assert set(found.burn_rates.values()) == {None}
    assert (found.left, found.exhausted_in_s, found.state) == (1.0, None, "ok")
