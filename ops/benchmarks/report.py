"""The figures as a Markdown table, and their place in docs/performance.md.

Replaces only the text between the two markers of a part of that page; the surrounding text is hand-written and stays.
"""

import os
import platform
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

#: How a figure is marked that is less than expected.
SHORT = "falls short"
#: How kload's figures are called in the tables.
UNITS = {"req_s": "requests/s", "mb_s": "MB/s"}
GIGABYTE = 1 << 30
#: As a cell of a table has it.
BAR = "\\|"
_PARTS_OF_A_SUM = re.compile(r" \([^()|]*\d \+ \d[^()|]*\)")


class Part(NamedTuple):
    """The markers of a part of the page."""

    begin: str
    end: str


FIGURES = Part("<!-- figures: written by ops/bench --record -->", "<!-- end of figures -->")
CROWDS = Part("<!-- crowds: written by ops/bench --crowds --record -->", "<!-- end of crowds -->")
AGAINST_KAFKA = Part(
    "<!-- against Kafka: written by ops/bench --against-kafka --record -->", "<!-- end of against Kafka -->"
)


@dataclass(frozen=True)
class Row:
    """One line of the table; all texts are ready to print."""

    title: str
    broker: str
    ruler: str
    ratio: str
    expected: str


def table(rows: list[Row]) -> str:
    titles = ["what", "Rotunda", "ruler", "ratio", "expected on 2 cores"]
    return markdown(titles, [[row.title, row.broker, row.ruler, row.ratio, row.expected] for row in rows])


def verdict(expected: str, reached: bool) -> str:
    """Return the expectation, marked when it was not met."""
    return expected if reached else f"{expected}: {SHORT}"


def markdown(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = tuple(titles)
    lines = [f"| {' | '.join(cell.replace('|', BAR) for cell in row)} |" for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def surroundings(repository: Path) -> str:
    """Return one paragraph: when, which commit, which machine."""
    memory_gb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GIGABYTE
    return (
        f"Measured {datetime.now(tz=UTC):%Y-%m-%d} at commit {commit(repository)} on {cpu_model()}, "
        f"{os.cpu_count()} cores, {memory_gb:.0f} GB, Linux {platform.release()}, "
        f"Python {platform.python_version()}."
    )


def commit(repository: Path) -> str:
    """Return the short commit, marked when the work tree differs from it."""
    git = ["git", "-C", str(repository)]
    named = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    if named.returncode:
        return "(none yet)"
    changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=False)
    return f"`{named.stdout.strip()}`" + (" with local changes" if changed.stdout.strip() else "")


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def record(page: Path, part: Part, surroundings: str, tables: str) -> None:
    write(page, part, f"{surroundings}\n\n{_without_parts(tables)}")


def record_rows(page: Path, part: Part, surroundings: str, tables: str) -> None:
    """Replace the rows of these titles in the tables of a part of `page`, and note when they were measured."""
    head, *old_tables = _content(page, part).split("\n\n")
    new_tables = _without_parts(tables).split("\n\n")
    #: Placed after the head and the line below it.
    titles = ", ".join(list(_rows(new_tables[0]))[2:])
    lines = [line for line in head.splitlines() if not line.startswith(f"{titles}: ")]
    lines.append(f"{titles}: m{surroundings[1:]}")
    merged = [
        "\n".join((_rows(old) | _rows(new)).values()) for old, new in zip_longest(old_tables, new_tables, fillvalue="")
    ]
    write(page, part, "\n\n".join(["\n".join(lines), *merged]))


def _rows(table: str) -> dict[str, str]:
    return {line.split(" | ")[0].removeprefix("| "): line for line in table.splitlines()}


def _without_parts(tables: str) -> str:
    """Return tables with sums of processor time, without their parts."""
    return _PARTS_OF_A_SUM.sub("", tables)


def _content(page: Path, part: Part) -> str:
    return page.read_text().split(part.begin)[1].split(part.end)[0].strip()


def write(page: Path, part: Part, text: str) -> None:
    before, rest = page.read_text().split(part.begin)
    _, after = rest.split(part.end)
    page.write_text(f"{before}{part.begin}\n\n{text}\n\n{part.end}{after}")
