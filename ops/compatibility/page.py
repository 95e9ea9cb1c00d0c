"""The table of outcomes: printed, and stored as docs/compatibility.md.

The page has one row per client, with the day of its run. Either the whole page is rewritten, or only the rows of the
clients that were run.
"""

import datetime
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ops.compatibility.clients import Client
from ops.compatibility.outcomes import Outcome, Verdict

DETAIL_CHARACTERS = 200
COLUMNS = ("client", "version", "day", "result", "features")
HEAD = """# Compatibility

Unmodified clients against a real broker:

```
ops/compat                           # all clients
ops/compat --against HOST:PORT       # the same checks against another broker
ops/compat --record                  # rewrite this page
ops/compat --tests                   # tests of limits, SASL, ACLs
```

*Handlers killed*: while handlers are killed ([reliability](reliability.md)). *Not run*: the client's tools are missing.
Each check ran against Apache Kafka {kafka} too, except those that read Rotunda's files or kill its processes.
librdkafka's tests get topics of one replica. Not 0179: Kafka's first share fetch has one partition, here all.

Streams groups (KIP-1071) are not served: `group.protocol=streams` ends with Kafka's error for a disabled protocol.

{summary}.

| {columns} |
|{lines}|
{rows}
"""

#: A row of the page: a cell for each of COLUMNS.
Row = tuple[str, ...]
_BETWEEN_CELLS = re.compile(r"(?<!\\)\|")
#: The names of tests of librdkafka and franz-go.
_TEST_NAME = re.compile(r"Test[A-Z]|\d{4}_")
_AS = "as "
_COUNT = re.compile(r"(\d+) (passed|failed|not run)")


class Table:
    """Collects the outcomes of clients in the order in which they were run."""

    def __init__(self) -> None:
        self._rows: list[tuple[Client, Outcome]] = []

    def add(self, client: Client, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            self._rows.append((client, outcome))
            print(f"{outcome.verdict.value:8} {client.key:16} {outcome.feature}  {outcome.detail}".rstrip(), flush=True)

    def failures(self) -> int:
        return sum(outcome.verdict is Verdict.FAILED for _, outcome in self._rows)

    def summary(self) -> str:
        return counted([outcome.verdict.value for _, outcome in self._rows])

    def record(self, page: Path, kafka: str, clients: Sequence[Client]) -> None:
        """Write the page: the clients that were run, and the existing rows of the other ``clients``."""
        day = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
        ran = {client.name for client, _ in self._rows}
        rows = [row for row in rows_of(page) if row[0] not in ran]
        for name, version in {client.name: client.version for client, _ in self._rows}.items():
            outcomes = [outcome for client, outcome in self._rows if client.name == name]
            rows.append((name, version(), day, result_of(outcomes), features_of(outcomes)))
        places = {client.name: place for place, client in enumerate(clients)}
        rows = sorted((row for row in rows if row[0] in places), key=lambda row: places[row[0]])
        page.write_text(
            HEAD.format(
                kafka=kafka,
                summary=counted([verdict for row in rows for verdict in verdicts_of(row)]),
                columns=" | ".join(COLUMNS),
                lines="|".join("---" for _ in COLUMNS),
                rows="\n".join(f"| {' | '.join(row)} |" for row in _with_references(rows)),
            )
        )


def rows_of(page: Path) -> list[Row]:
    """Return the rows of a page; none of one that is not there."""
    lines = page.read_text().splitlines() if page.exists() else []
    rows = [tuple(cell.strip() for cell in _BETWEEN_CELLS.split(line)[1:-1]) for line in lines if line[:1] == "|"]
    found: dict[str, Row] = {}
    for row in rows[2:]:
        if len(row) == len(COLUMNS):
            named = row[-1].removeprefix(_AS)
            found[row[0]] = (*row[:-1], found[named][-1] if row[-1] != named else named)
    return list(found.values())


def _with_references(rows: Sequence[Row]) -> list[Row]:
    """Return the rows; one with the features of an earlier one names that instead."""
    first: dict[str, str] = {}
    return [
        (*row[:-1], row[-1] if first.setdefault(row[-1], row[0]) == row[0] else f"{_AS}{first[row[-1]]}")
        for row in rows
    ]


def verdicts_of(row: Row) -> list[str]:
    """Return a verdict for each feature that a row of the page counts."""
    return [verdict for number, verdict in _COUNT.findall(row[3].partition(":")[0]) for _ in range(int(number))]


def features_of(outcomes: Sequence[Outcome]) -> str:
    """Return the names of the features, those with one prefix together; of a client's own tests their number."""
    names = [outcome.feature for outcome in outcomes if not _TEST_NAME.match(outcome.feature)]
    tests = len(outcomes) - len(names)
    groups: dict[str, list[str]] = {}
    for name in names:
        prefix, colon, rest = shortened(name).partition(": ")
        groups.setdefault(prefix + colon, []).append(rest)
    texts = [prefix + " / ".join(filter(None, rest)) for prefix, rest in groups.items()]
    return "; ".join([*([f"{tests} single tests"] if tests else []), *texts])


def result_of(outcomes: Sequence[Outcome]) -> str:
    """Return the number of passed features, and the errors of the others."""
    numbers = Counter(outcome.verdict for outcome in outcomes)
    text = ", ".join(f"{numbers[verdict]} {verdict.value}" for verdict in Verdict if numbers[verdict])
    faults = [f"{each.feature}: {each.detail}" for each in outcomes if each.verdict is Verdict.FAILED]
    return f"{text}: {shortened('; '.join(faults))}" if faults else text


def counted(verdicts: Sequence[str]) -> str:
    counts = Counter(verdicts)
    return ", ".join(f"{counts[verdict.value]} {verdict.value}" for verdict in Verdict)


def shortened(detail: str) -> str:
    """Return a detail that fits a cell: one line, without the places of this machine's files."""
    words = [word for word in detail.split() if "/" not in word]
    return " ".join(words).replace("|", "\\|")[:DETAIL_CHARACTERS]
