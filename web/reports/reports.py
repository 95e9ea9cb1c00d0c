"""The reports: the latest result of each Spark job below the data directory, and the jobs without one.

A result is parsed on the first request after a change; otherwise a request costs a stat for each job. The file may be
anything: large, truncated, of another version, or not a file. Then the job is shown as unreadable, with the reason.
"""

from __future__ import annotations

import os
import shlex
import stat
from dataclasses import replace
from typing import TYPE_CHECKING

from rotunda.web.reports.chart import MOST_BYTES as MOST_CHART_BYTES
from rotunda.web.reports.chart import InvalidChart, sanitised
from rotunda.web.reports.summary import Brief, Report, Unreadable, parsed

if TYPE_CHECKING:
    from pathlib import Path

    from rotunda.web.sources import JobFacts, Sources

MOST_BYTES = 2 * 1024 * 1024
#: The job whose headline is on the overview.
DIAGNOSIS = "diagnose"


class Reports:
    """The results below a directory, one for each known job."""

    def __init__(self, sources: Sources) -> None:
        self._directory = sources.reports
        self._empty = {
            name: Report(brief=_nothing_yet(name, facts, sources.facts.data_dir))
            for name, facts in sources.jobs.items()
        }
        self._known: dict[str, Report] = {}
        self._charts: dict[str, tuple[str, str]] = {}

    def briefs(self) -> list[Brief]:
        """Return every job with a summary of its latest result."""
        return [self._report(name).brief for name in self._empty]

    def report(self, name: str) -> Report | None:
        """Return a job with its latest result; None for an unknown job."""
        return self._report(name) if name in self._empty else None

    def diagnosis(self) -> Brief | None:
        """Return the latest diagnosis, None if there is none."""
        found = self.report(DIAGNOSIS)
        return found.brief if found is not None and found.brief.state == "there" else None

    def chart(self, name: str) -> str | None:
        """Return a job's chart as a sanitised SVG document; None if there is none. Raises InvalidChart."""
        if name not in self._empty:
            return None
        path = self._directory / name / "chart.svg"
        try:
            stamp = _stamp(path)
            if stamp is None:
                return None
            known = self._charts.get(name)
            if known is None or known[0] != stamp:
                known = self._charts[name] = stamp, sanitised(_read(path, MOST_CHART_BYTES))
        except (OSError, Unreadable) as error:
            raise InvalidChart(_reason(error)) from None
        return known[1]

    def _report(self, name: str) -> Report:
        empty, path = self._empty[name], self._directory / name / "summary.json"
        try:
            stamp = _stamp(path)
        except OSError as error:
            return _unreadable(empty, _reason(error), "")
        if stamp is None:
            return empty
        known = self._known.get(name)
        if known is None or known.brief.stamp != stamp:
            try:
                known = parsed(empty.brief, stamp, _read(path, MOST_BYTES))
            except (OSError, Unreadable) as error:
                known = _unreadable(empty, _reason(error), stamp)
            self._known[name] = known
        return known


def _nothing_yet(name: str, job: JobFacts, data_dir: str) -> Brief:
    words = ["rotunda", "report", name, job.needs, "--data-dir", shlex.quote(data_dir)]
    return Brief(job=name, question=job.question, command=" ".join(word for word in words if word))


def _stamp(path: Path) -> str | None:
    """Return a stamp that changes with a file; None if it does not exist. Raises OSError."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return f"{found.st_mtime_ns:x}-{found.st_size:x}-{found.st_ino:x}"


def _read(path: Path, most: int) -> bytes:
    """Return a regular file of at most `most` bytes. Raises OSError and Unreadable."""
    # Non-blocking: opening a pipe must not wait before it is detected.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Unreadable(f"{path.name} is not a file")
        content = file.read(most + 1)
    if len(content) > most:
        raise Unreadable(f"{path.name} is larger than {most >> 20} MB")
    return content


def _unreadable(empty: Report, reason: str, stamp: str) -> Report:
    return Report(brief=replace(empty.brief, state="unreadable", reason=reason, stamp=stamp))


def _reason(error: Exception) -> str:
    return (error.strerror or "it cannot be read") if isinstance(error, OSError) else str(error)
