"""The figures as a Markdown table, and their place in docs/performance.md.

Only what stands between the two markers of a part of that page is replaced; what is written around it by hand stays.
"""

import os
import platform
import re
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

#: How a figure is marked that is less than expected.
SHORT = "falls short"
#: How kload's figures are called in the tables.
UNITS = {"req_s": "requests/s", "mb_s": "MB/s"}
GIGABYTE = 1 << 30
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
    """Return the rows as a Markdown table."""
    titles = ["what", "Rotunda", "ruler", "ratio", "expected on 2 cores"]
    return markdown(titles, [[row.title, row.broker, row.ruler, row.ratio, row.expected] for row in rows])


def markdown(titles: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    head = [f"| {' | '.join(titles)} |", "|" + "---|" * len(titles)]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows)])


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
    """Return the processor's name as the kernel gives it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def record(page: Path, part: Part, text: str) -> None:
    """Put `text` between the markers of a part of `page`, sums of processor time without their parts."""
    text = _PARTS_OF_A_SUM.sub("", text)
    before, rest = page.read_text().split(part.begin)
    _, after = rest.split(part.end)
    page.write_text(f"{before}{part.begin}\n\n{text}\n\n{part.end}{after}")
