"""The page of compatibility: a run replaces the row of its client, all others stay as they are."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ops.compatibility.clients import CLIENTS
from ops.compatibility.outcomes import Outcome, Verdict
from ops.compatibility.page import COLUMNS, Table, rows_of

CHOSEN = [dataclasses.replace(client, version=lambda: "1.0") for client in CLIENTS[:3]]


def test_each_row_belongs_to_one_client() -> None:
    assert len({client.name for client in CLIENTS}) == len(CLIENTS)


def test_only_the_rows_of_clients_that_were_run_are_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    whole = Table()
    for client in (CHOSEN[0], CHOSEN[2]):
        whole.add(client, [Outcome("a", Verdict.PASSED), Outcome("b", Verdict.FAILED, "it is 3 | 4")])
    whole.record(page, "4.3.1", CHOSEN)
    part = Table()
    part.add(CHOSEN[1], [Outcome("c", Verdict.PASSED)])
    part.add(CHOSEN[2], [Outcome("b", Verdict.PASSED, "142 tests")])
    part.record(page, "4.3.1", CHOSEN)
    rows = rows_of(page)
    assert all(len(row) == len(COLUMNS) for row in rows)
    assert [(row[0], row[3], row[4]) for row in rows] == [
        (CHOSEN[0].name, "1 passed, 1 failed: b: it is 3 \\| 4", "a; b"),
        (CHOSEN[1].name, "1 passed", "c"),
        (CHOSEN[2].name, "1 passed", "b"),
    ]
    assert "3 passed, 1 failed, 0 not run." in page.read_text()


def test_a_row_with_the_features_of_an_earlier_one_names_it(tmp_path: Path) -> None:
    page, table = tmp_path / "page.md", Table()
    for client in CHOSEN[:2]:
        table.add(client, [Outcome("a", Verdict.PASSED), Outcome("b", Verdict.PASSED)])
    table.record(page, "4.3.1", CHOSEN)
    assert f"| 2 passed | as {CHOSEN[0].name} |" in page.read_text()
    assert [row[-1] for row in rows_of(page)] == ["a; b", "a; b"]
