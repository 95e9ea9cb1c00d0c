"""The results of Spark jobs as the page reads them: whichever files are there, the page works and reports errors."""

import argparse
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rotunda.broker.status.report_jobs import report_jobs
from rotunda.spark.jobs import JOBS
from rotunda.web.reports import reports as module
from rotunda.web.reports.chart import InvalidChart
from rotunda.web.reports.reports import MOST_BYTES, Reports
from rotunda.web.reports.summary import LONGEST_CELL, MOST_ROWS
from rotunda.web.sources import JobFacts
from tests.support.report_files import CHART, summary, write_report

KNOWN = {"latency": JobFacts("How long?", ""), "diagnose": JobFacts("What is wrong?", "--model FILE")}


@pytest.fixture
def found(tmp_path: Path) -> Reports:
    """Return the reports below a directory, of two jobs."""
    facts = SimpleNamespace(data_dir="/data of it's")
    return Reports(SimpleNamespace(reports=tmp_path, jobs=KNOWN, facts=facts))  # type: ignore[arg-type]


def test_every_job_and_no_other_is_known_by_its_own_question():
    """Issue 11: jobs that have no result are listed too."""
    assert list(report_jobs()) == list(JOBS)
    for name, facts in report_jobs().items():
        job = import_module(JOBS[name]).JOB
        assert facts.question
        assert " ".join(job.question.split()).startswith(facts.question)
        parser = argparse.ArgumentParser()
        job.add_options(parser)
        needed = [f"{each.option_strings[0]} {each.metavar}" for each in parser._actions if each.required]
        assert facts.needs == " ".join(needed)


def test_jobs_without_a_result_say_how_to_make_one(found: Reports):
    assert [(each.job, each.question, each.state) for each in found.briefs()] == [
        ("latency", "How long?", "none"),
        ("diagnose", "What is wrong?", "none"),
    ]
    assert found.briefs()[0].command == """rotunda report latency --data-dir '/data of it'"'"'s'"""
    assert found.briefs()[1].command.startswith("rotunda report diagnose --model FILE --data-dir")
    assert found.diagnosis() is None


def test_a_result_is_what_the_job_left(found: Reports, tmp_path: Path):
    write_report(tmp_path, "diagnose")
    report = found.report("diagnose")
    assert report is not None
    brief = report.brief
    assert (brief.state, brief.headline, brief.took_s) == ("there", "What diagnose found", 9.5)
    assert (brief.ended_ms, brief.from_ms) == (1772366409500, 1772359200000)
    assert (brief.command, brief.chart) == ("rotunda report diagnose --from 24h", CHART.title)
    assert report.facts == {"clients": 2}
    [table] = report.tables
    assert (table.name, table.rows) == ("clients", [["app", 1200, 20.5], [None, 300, 4e6]])
    assert found.diagnosis() == brief


def test_a_result_is_parsed_once_and_again_when_it_has_changed(
    found: Reports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Issue 11: a look each second costs no parsing."""
    parsed: list[Path] = []
    read = module._read
    monkeypatch.setattr(module, "_read", lambda path, most: (parsed.append(path), read(path, most))[1])
    path = write_report(tmp_path, "diagnose")
    first = found.diagnosis()
    for _ in range(20):
        assert found.diagnosis() == first
        found.briefs()
        found.chart("diagnose")
    assert sorted(parsed) == [path.with_name("chart.svg"), path]
    write_report(tmp_path, "diagnose", headline="another")
    again = found.diagnosis()
    assert again is not None
    assert again.headline == "another"
    assert first is not None
    assert again.stamp != first.stamp
    path.unlink()
    assert found.diagnosis() is None


WRONG: dict[str, tuple[bytes, str]] = {
    "cut off": (json.dumps(summary("latency")).encode()[:200], "not JSON"),
    "no text": (b"\xff\xfe\x00", "not JSON"),
    "too deep": (b"[" * 100_000, "not JSON"),
    "digits": (b'{"version": ' + b"1" * 5000 + b"}", "not JSON"),
    "a list": (b"[]", "not a summary"),
    "too large": (b" " * (MOST_BYTES + 1), "larger than 2 MB"),
    "another version": (json.dumps(summary("latency", version=2)).encode(), "version 2; this page knows version 1"),
    "no version": (b"{}", "version None"),
    "another job": (json.dumps(summary("traffic")).encode(), "of the job traffic"),
    "lacking": (b'{"version": 1, "job": "latency"}', "lacks 'command'"),
    "no headline": (json.dumps(summary("latency", headline=None)).encode(), "another kind"),
    "no time": (json.dumps(summary("latency", ended="soon")).encode(), "another kind"),
    "a far time": (json.dumps(summary("latency", ended=1)).encode(), "another kind"),
    "endless": (json.dumps(summary("latency", tookS=1e400)).encode(), "another kind"),
    "tables": (json.dumps(summary("latency", tables=[1])).encode(), "another kind"),
    "rows": (json.dumps(summary("latency", tables={"a": {"columns": ["x"], "rows": [[1, 2]]}})).encode(), "kind"),
    "facts": (json.dumps(summary("latency", facts="many")).encode(), "another kind"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_read_is_shown_with_the_reason(found: Reports, tmp_path: Path, name: str):
    content, reason = WRONG[name]
    write_report(tmp_path, "diagnose")
    (tmp_path / "latency").mkdir()
    (tmp_path / "latency" / "summary.json").write_bytes(content)
    wrong, right = found.briefs()
    assert (wrong.state, right.state) == ("unreadable", "there")
    assert reason in wrong.reason
    assert wrong.command.startswith("rotunda report latency --data-dir")


MAKERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "pipe": (os.mkfifo, "not a file"),
    "directory": (Path.mkdir, "s a directory|not a file"),
    "circle": (lambda path: path.symlink_to(path), "symbolic links"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "not a file"),
}


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_no_file_keeps_nobody_waiting(found: Reports, tmp_path: Path, name: str):
    make, reason = MAKERS[name]
    (tmp_path / "latency").mkdir()
    for file in ("summary.json", "chart.svg"):
        make(tmp_path / "latency" / file)
    brief = found.briefs()[0]
    assert brief.state == "unreadable"
    assert any(each in brief.reason for each in reason.split("|"))
    with pytest.raises(InvalidChart):
        found.chart("latency")


def test_values_are_such_that_any_reader_can_read_them(found: Reports, tmp_path: Path):
    values: list[Any] = ["x" * 1000, float("nan"), float("inf"), 1 << 80, "\ud800", {"a": [1]}, True, None, 1.5]
    rows = [values] * (MOST_ROWS + 50)
    table = {"columns": [str(place) for place in range(len(values))], "rows": rows}
    write_report(tmp_path, "latency", tables={"all": table}, headline="\u202e" * 5000)
    report = found.report("latency")
    assert report is not None
    text = json.dumps(asdict(report), allow_nan=False)
    assert text.isascii()
    [shown] = report.tables
    assert len(shown.rows) == MOST_ROWS
    cut = "x" * (LONGEST_CELL - 1) + "…"
    assert shown.rows[0] == [cut, None, None, str(1 << 80), "\ud800", '{"a": [1]}', True, None, 1.5]
    assert report.brief.headline is not None
    assert len(report.brief.headline) < 5000


def test_a_list_among_the_single_numbers_is_a_table(found: Reports, tmp_path: Path):
    facts = {
        "gini": 0.5,
        "savings": [{"lingerMs": 5, "requests": 10}, {"lingerMs": 20}],
        "odd": [1, {"a": 2}],
        "none": [],
    }
    write_report(tmp_path, "latency", facts=facts)
    report = found.report("latency")
    assert report is not None
    assert report.facts == {"gini": 0.5, "odd": '[1, {"a": 2}]', "none": "[]"}
    assert asdict(report.tables[1]) == {
        "name": "savings",
        "columns": ["lingerMs", "requests"],
        "rows": [[5, 10], [20, None]],
    }


def test_a_name_leads_to_no_other_place(found: Reports, tmp_path: Path):
    write_report(tmp_path, "other")
    for name in ("other", "../latency", "", ".", "latency/", "/etc"):
        assert found.report(name) is None
        assert found.chart(name) is None


def test_a_directory_that_is_not_there_is_no_fault(tmp_path: Path):
    facts = SimpleNamespace(data_dir="/data")
    (tmp_path / "file").write_text("")
    for directory in (tmp_path / "none", tmp_path / "file"):
        sources = SimpleNamespace(reports=directory, jobs=KNOWN, facts=facts)
        assert [each.state for each in Reports(sources).briefs()] == ["none", "none"]  # type: ignore[arg-type]
