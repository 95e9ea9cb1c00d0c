"""The summary of a campaign: its contents in docs/reliability.md, and their place."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from ops.reliability import report
from ops.reliability.bystander import Sightings
from ops.reliability.campaign import Footprint, Orders, Result
from ops.reliability.ledger import Tally
from ops.reliability.pauses import BESIDE, CAUSES, DIED, CauseOfPauses
from ops.reliability.turns import Turns

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


def result() -> Result:
    pauses = [CauseOfPauses(cause, 1, 0.5 if cause == DIED else 0.25, 1) for cause in CAUSES]
    footprint = Footprint({"handler": 2 << 20}, 1, 1)
    return Result(
        orders=Orders(seed=7, minutes=1, kills=None, frames=None),
        seconds=60,
        actions={"SIGKILL handler": 3, "SIGKILL web": 2, "SIGSTOP handler": 4, "SIGSTOP woken": 4, "disk full": 1},
        frames={"frames": 1000, "answered": 1, "versions": 1},
        tallies={"a": Tally(acknowledged=10, read=20, lost=1), "b": Tally(acknowledged=5)},
        sightings=Sightings(answers=9, errors=Counter(), pauses=[]),
        pauses=pauses,
        footprints=[footprint, footprint],
        turns=Turns(),
        remarks=[],
        failures=[],
    )


def test_attacks_are_counted_by_kind_and_faults_over_all_clients() -> None:
    lines = report.summary(result()).splitlines()
    assert "| processes killed; stopped | 5; 4 |" in lines
    assert "| other attacks | 1 |" in lines
    assert "| records acknowledged; read | 15; 20 |" in lines
    assert "| lost | 1 |" in lines
    assert "| longest pause when its own processor died | 0.50 s |" in lines
    assert f"| longest pause otherwise | {0.25:.2f} s |" in lines
    assert "| connections closed while their processor lived | 3 |" in lines
    assert BESIDE in CAUSES


def titles(text: str) -> list[str]:
    return [line.split(" | ")[0] for line in text.partition("<!-- end")[0].splitlines() if line.startswith("| ")]


def test_the_page_has_the_rows_of_a_summary_and_is_rewritten_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text())
    summary = report.summary(result())
    _, kept = PAGE.read_text().split("<!-- latest")
    assert titles(kept) == titles(summary)
    report.record(page, summary)
    assert summary in page.read_text()
    assert page.read_text().partition("<!-- latest")[0] == PAGE.read_text().partition("<!-- latest")[0]
