"""The table of what was run: printed, and kept as docs/compatibility.md.

The page is rewritten as a whole, or the rows of those clients that were run; each row has the day of its run.
"""

import datetime
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ops.compatibility.clients import Client
from ops.compatibility.outcomes import Outcome, Verdict

DETAIL_CHARACTERS = 200
COLUMNS = ("client", "version", "feature", "day", "result")
HEAD = """# Compatibility

Printed by `ops/compat --record`: unmodified clients against a real broker, feature by feature. "not run" means that
the machine lacked what the client needs, and shows nothing either way. Each check was itself held against Apache
Kafka {kafka} with `ops/compat --against HOST:PORT`, but for those that read this broker's own files, kill its processes
or were not run. librdkafka's tests get topics of one replica where they ask for three.

{summary}.

| {columns} |
|{lines}|
{rows}
"""

#: A row of the page: a cell for each of COLUMNS.
Row = tuple[str, ...]
_BETWEEN_CELLS = re.compile(r"(?<!\\)\|")


class Table:
    """Collects the outcomes of clients in the order in which they were run."""

    def __init__(self) -> None:
        self._rows: list[tuple[Client, Outcome]] = []

    def add(self, client: Client, outcomes: list[Outcome]) -> None:
        """Take in what came of one client and print it."""
        for outcome in outcomes:
            self._rows.append((client, outcome))
            print(f"{outcome.verdict.value:8} {client.key:16} {outcome.feature}  {outcome.detail}".rstrip(), flush=True)

    def failures(self) -> int:
        """Return how many features failed."""
        return sum(outcome.verdict is Verdict.FAILED for _, outcome in self._rows)

    def summary(self) -> str:
        """Return how many passed, failed and were not run."""
        return counted([outcome.verdict.value for _, outcome in self._rows])

    def record(self, page: Path, kafka: str, clients: Sequence[Client]) -> None:
        """Write the page: what was run, and of the other ``clients`` the rows that it has."""
        day = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
        ran = {client.name for client, _ in self._rows}
        rows = [row for row in rows_of(page) if row[0] not in ran]
        rows += [(each.name, each.version(), of.feature, day, result_of(of)) for each, of in self._rows]
        places = {client.name: place for place, client in enumerate(clients)}
        rows = sorted((row for row in rows if row[0] in places), key=lambda row: places[row[0]])
        page.write_text(
            HEAD.format(
                kafka=kafka,
                summary=counted([row[-1].partition(":")[0] for row in rows]),
                columns=" | ".join(COLUMNS),
                lines="|".join("---" for _ in COLUMNS),
                rows="\n".join(f"| {' | '.join(row)} |" for row in rows),
            )
        )


def rows_of(page: Path) -> list[Row]:
    """Return the rows of a page; none of one that is not there."""
    lines = page.read_text().splitlines() if page.exists() else []
    rows = [tuple(cell.strip() for cell in _BETWEEN_CELLS.split(line)[1:-1]) for line in lines if line[:1] == "|"]
    return [row for row in rows[2:] if len(row) == len(COLUMNS)]


def result_of(outcome: Outcome) -> str:
    """Return the last cell of an outcome; what went wrong is cut to a line."""
    detail = shortened(outcome.detail)
    return f"{outcome.verdict.value}: {detail}" if detail else outcome.verdict.value


def counted(verdicts: Sequence[str]) -> str:
    """Return how many there are of each verdict."""
    counts = Counter(verdicts)
    return ", ".join(f"{counts[verdict.value]} {verdict.value}" for verdict in Verdict)


def shortened(detail: str) -> str:
    """Return a detail that fits a cell: one line, without the places of this machine's files."""
    words = [word for word in detail.split() if "/" not in word]
    return " ".join(words).replace("|", "\\|")[:DETAIL_CHARACTERS]
