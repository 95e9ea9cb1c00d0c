"""The rows of docs/behaviours.md and their citations agree, and what is cited is found where it stands."""

from __future__ import annotations

from tests.behaviours import Citation, citations, cited_by, rows

REASONS = ("not kept", "nothing to keep")

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
    assert [row for row in rows() if row.reason and not row.reason.startswith(REASONS)] == []


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
