"""The table that a campaign ends with: printed, and kept in docs/reliability.md."""

from __future__ import annotations

from collections.abc import Iterable

from ops.reliability.campaign import Footprint, Result
from ops.reliability.ledger import Tally

MEGABYTE = 1 << 20
COLUMNS = (
    ("acknowledged", "acknowledged"),
    ("read", "read"),
    ("lost", "lost"),
    ("twice", "twice"),
    ("out of order", "out_of_order"),
    ("elsewhere", "misplaced"),
    ("aborted", "aborted"),
    ("aborted seen", "aborted_seen"),
    ("torn", "torn"),
    ("given up", "failed"),
    ("sent again", "repeated_by_client"),
)


def text(result: Result) -> str:
    """Return everything that came of a campaign."""
    parts = [
        f"seed {result.orders.seed}, {result.seconds / 60:.1f} minutes",
        table(("what was done", "times"), ((name, f"{count:,}") for name, count in sorted(result.actions.items()))),
        records(result.tallies),
        errors(result.tallies),
        usage(result.before, result.after),
    ]
    if result.failures:
        parts.append("\n".join(["The campaign itself failed:", *result.failures]))
    return "\n\n".join(parts)


def records(tallies: dict[str, Tally]) -> str:
    """Return what the clients saw, workload by workload and together."""
    rows = [*tallies.items(), ("together", sum(tallies.values(), Tally()))]
    head = ("clients", *(title for title, _ in COLUMNS), "errors", "longest pause")
    return table(
        head,
        (
            (
                name,
                *(f"{getattr(tally, field):,}" for _, field in COLUMNS),
                f"{sum(tally.errors.values()):,}",
                f"{tally.longest_pause_seconds:.1f} s",
            )
            for name, tally in rows
        ),
    )


def errors(tallies: dict[str, Tally]) -> str:
    """Return what the clients complained of."""
    counted = sum(tallies.values(), Tally()).errors
    return table(("error of a client", "times"), ((name, f"{count:,}") for name, count in counted.most_common()))


def usage(before: Footprint, after: Footprint) -> str:
    """Return what the broker used at the beginning and at the end."""
    rows = [
        (f"memory of {role} (PSS)", megabytes(before.memory.get(role, 0)), megabytes(after.memory.get(role, 0)))
        for role in sorted({*before.memory, *after.memory})
    ]
    rows.append(("memory together", megabytes(sum(before.memory.values())), megabytes(sum(after.memory.values()))))
    rows.append(("descriptors", str(before.descriptors), str(after.descriptors)))
    rows.append(("files in /dev/shm", str(before.shared_files), str(after.shared_files)))
    return table(("the broker uses", "at the beginning", "at the end"), rows)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table."""
    titles = tuple(head)
    lines = [titles, tuple("---" for _ in titles), *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def megabytes(size: int) -> str:
    """Return a size as the table shows it."""
    return f"{size / MEGABYTE:.1f} MB"
