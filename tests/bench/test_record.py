"""The figures of `ops/bench --record` on their page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ops.benchmarks import report

if TYPE_CHECKING:
    from pathlib import Path

PART = report.Part("<!-- figures -->", "<!-- end -->")
HEAD = ["what", "rate"]


def test_some_rows_are_replaced_and_the_others_stay(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{PART.begin}\n{PART.end}\nafter\n")
    report.record(page, PART, "Measured on Monday.", report.markdown(HEAD, [["Fetch", "1"], ["Produce", "2"]]))
    report.record_rows(page, PART, "Measured on Tuesday.", report.markdown(HEAD, [["Fetch", "3"]]))
    report.record_rows(page, PART, "Measured on Friday.", report.markdown(HEAD, [["Fetch", "4"], ["Metadata", "5"]]))
    report.record_rows(page, PART, "Measured on Sunday.", report.markdown(HEAD, [["Fetch", "6"]]))
    table = report.markdown(HEAD, [["Fetch", "6"], ["Produce", "2"], ["Metadata", "5"]])
    notes = "Measured on Monday.\nFetch, Metadata: measured on Friday.\nFetch: measured on Sunday."
    assert page.read_text() == f"before\n{PART.begin}\n\n{notes}\n\n{table}\n\n{PART.end}\nafter\n"
