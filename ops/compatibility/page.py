"""The table of what was run: printed, and kept as docs/compatibility.md."""

import datetime
from collections import Counter
from pathlib import Path

from ops.compatibility.clients import Client
from ops.compatibility.outcomes import Outcome, Verdict

DETAIL_CHARACTERS = 200
HEAD = """# Compatibility

Printed by `ops/compat --record`: unmodified clients against a real broker, feature by feature. "not run" means that
the machine lacked what the client needs, and shows nothing either way. Each check was itself held against Apache
Kafka {kafka} with `ops/compat --against HOST:PORT`, but for those that read this broker's own files, kill its processes
or were not run. librdkafka's tests get topics of one replica where they ask for three.

{summary}

| client | version | feature | result |
|---|---|---|---|
{rows}
"""


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
        counts = Counter(outcome.verdict for _, outcome in self._rows)
        return ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict)

    def record(self, page: Path, kafka: str) -> None:
        """Write the page; what went wrong is cut to a line."""
        rows = []
        for client, outcome in self._rows:
            detail = shortened(outcome.detail)
            shown = outcome.verdict.value if not detail else f"{outcome.verdict.value}: {detail}"
            rows.append(f"| {client.name} | {client.version()} | {outcome.feature} | {shown} |")
        day = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
        summary = f"{day}: {self.summary()}."
        page.write_text(HEAD.format(kafka=kafka, summary=summary, rows="\n".join(rows)))


def shortened(detail: str) -> str:
    """Return a detail that fits a cell: one line, without the places of this machine's files."""
    words = [word for word in detail.split() if "/" not in word]
    return " ".join(words).replace("|", "\\|")[:DETAIL_CHARACTERS]
