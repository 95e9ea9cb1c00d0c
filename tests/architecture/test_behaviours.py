"""The rows of docs/behaviours.md agree with their citations, and every cited test exists."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.behaviours import Citation, citations, cited_by, describe_markdown, rows
from tests.support.deadline import deadline_s

NOT_KEPT = "not kept: "

MODULE = '''"""A module (`B07`)."""
def test_b08_d10_ways() -> None:
    """`C02`, C04-``C06``."""
@pytest.mark.parametrize("case", ["D12 closing"])
def test_of_cases(case) -> None: ...
'''


def test_every_cited_row_is_on_the_page() -> None:
    known = {row.number for row in rows()}
    unknown = [each for each in citations() if each.number not in known]
    assert not unknown, "add it to tests/behaviours.toml, or cite another"


def test_every_row_that_is_kept_is_cited_by_a_test_and_by_code() -> None:
    tested = {each.number for each in citations() if "/test_" in each.path}
    placed = {each.number for each in citations() if not each.path.startswith("tests/")}
    for row in rows():
        assert row.reason or row.number in tested, f"{row.number} is cited by no test: {row.what}"
        assert row.reason or row.number in placed, f"{row.number} is cited by no module: {row.what}"


def test_a_row_that_is_not_kept_says_why() -> None:
    assert [row for row in rows() if row.reason and not row.reason.startswith(NOT_KEPT)] == []


def test_no_row_stands_twice() -> None:
    numbers = [row.number for row in rows()]
    assert numbers == sorted(set(numbers))


def test_a_citation_belongs_to_the_test_that_it_stands_in() -> None:
    path = "tests/test_m.py"
    found = {
        Citation("B07", path),
        *(Citation(number, path, "test_b08_d10_ways") for number in ("B08", "D10", "C02", "C04", "C05", "C06")),
        Citation("D12", path, "test_of_cases"),
    }
    assert set(cited_by(path, MODULE)) == found
    assert [each.number for each in cited_by("broker/m.py", MODULE)] == ["B07", "C02", "C04", "C05", "C06", "D12"]


def test_the_page_has_one_line_a_row_with_its_state() -> None:
    lines = [
        line for line in describe_markdown().splitlines() if line[:2] == "| " and line[2:5].strip("|")[1:].isdigit()
    ]
    assert [line.split(" | ")[0].removeprefix("| ") for line in lines] == [row.number for row in rows()]
    assert ["| **Not kept.** " in line for line in lines] == [bool(row.reason) for row in rows()]


def test_the_command_prints_the_code_and_the_tests_of_a_row() -> None:
    found = _run("b07")
    assert found.returncode == 0
    assert "  code\n    broker/network/" in found.stdout
    assert "  tests\n    tests/network/" in found.stdout


def test_the_command_rejects_an_unknown_row() -> None:
    assert (_run("Z99").returncode, _run("Z99").stdout) == (2, "unknown row: Z99\n")


def _run(*rows: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.behaviours", *rows]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=deadline_s(), check=False)
