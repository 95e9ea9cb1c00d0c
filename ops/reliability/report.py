"""The tables at the end of a campaign, and their summary for docs/reliability.md."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from ops.benchmarks.report import Part, markdown, surroundings, write
from ops.broker import REPOSITORY
from ops.reliability.bystander import Sightings
from ops.reliability.campaign import Footprint, Result
from ops.reliability.killing import KILL, STOP
from ops.reliability.ledger import FAULTS, Tally
from ops.reliability.pauses import BESIDE, DIED, HANDLER_STOPPED, STOPPED, CauseOfPauses

MEGABYTE = 1 << 20
LATEST = Part("<!-- latest: written by ops/campaign --record -->", "<!-- end of latest -->")
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
    ("delivery count too low", "miscounted"),
    ("given up", "failed"),
    ("sent again", "repeated_by_client"),
    ("redelivered", "redelivered"),
)


def text(result: Result) -> str:
    parts = [
        f"Seed {result.orders.seed}, {result.seconds / 60:.1f} minutes of attacks.",
        actions(result),
        records(result.tallies),
        evidence(result.tallies),
        errors(result.tallies),
        bystanders(result.sightings, result.pauses),
        str(result.turns),
        usage(result.footprints),
    ]
    if result.remarks:
        parts.append("\n".join(f"- {remark}" for remark in result.remarks))
    if result.failures:
        parts.append("\n".join(["**The campaign failed:**", *result.failures]))
    return "\n\n".join(filter(None, parts))


def evidence(tallies: dict[str, Tally]) -> str:
    return "\n".join(f"- {name}: {line}" for name, tally in tallies.items() for line in tally.evidence)


def actions(result: Result) -> str:
    rows = [(name, f"{count:,}") for name, count in sorted(result.actions.items())]
    frames = result.frames
    rows.append(("mutated frames", f"{frames['frames']:,}"))
    rows.append(("of them answered; over the others a connection was closed", f"{frames['answered']:,}"))
    return markdown(("what was done", "times"), rows)


def bystanders(sightings: Sightings, pauses: list[CauseOfPauses]) -> str:
    rows = [
        (row.cause, f"{row.pauses:,}", f"{row.worst_seconds:.2f} s" if row.pauses else "none", f"{row.closed:,}")
        for row in pauses
    ]
    head = ("while", "pauses above 0.1 s", "the worst", "connections closed")
    complaints = "; ".join(f"{error} ({count})" for error, count in sorted(sightings.errors.items()))
    words = f"Bystanders had {sightings.answers:,} answers." + (f" They noted: {complaints}." if complaints else "")
    return f"{words}\n\n{markdown(head, rows)}"


def records(tallies: dict[str, Tally]) -> str:
    rows = [*tallies.items(), ("together", sum(tallies.values(), Tally()))]
    head = ("clients", *(title for title, _ in COLUMNS), "errors", "longest pause")
    return markdown(
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
    counted = sum(tallies.values(), Tally()).errors
    return markdown(("error of a client", "times"), ((name, f"{count:,}") for name, count in counted.most_common()))


def usage(footprints: list[Footprint]) -> str:
    roles = sorted({role for each in footprints for role in each.memory})
    rows = [
        (f"memory of {role} (PSS)", *(megabytes(each.memory.get(role, 0)) for each in footprints)) for role in roles
    ]
    rows.append(("memory together", *(megabytes(each.total) for each in footprints)))
    rows.append(("descriptors", *(str(each.descriptors) for each in footprints)))
    rows.append(("files in /dev/shm", *(str(each.shared_files) for each in footprints)))
    quarters = ("1st quarter", "2nd quarter", "3rd quarter")[: len(footprints) - 2]
    return markdown(("the broker uses", "at the beginning", *quarters, "at the end"), rows)


def megabytes(size: int) -> str:
    return f"{size / MEGABYTE:.1f} MB"


def summary(result: Result) -> str:
    together = sum(result.tallies.values(), Tally())
    signals = Counter[str]()
    for name, count in result.actions.items():
        signal, _, role = name.partition(" ")
        if role not in {"replaced", "woken"}:
            signals[signal if signal in {KILL, STOP} else "other"] += count
    worst = {row.cause: f"{row.worst_seconds:.2f} s" for row in result.pauses}
    closed = sum(row.closed for row in result.pauses if row.cause in {BESIDE, STOPPED, HANDLER_STOPPED})
    first, last = result.footprints[0], result.footprints[-1]
    rows = [
        ("processes killed; stopped", f"{signals[KILL]:,}; {signals[STOP]:,}"),
        ("other attacks", f"{signals['other']:,}"),
        ("mutated frames", f"{result.frames['frames']:,}"),
        ("records acknowledged; read", f"{together.acknowledged:,}; {together.read:,}"),
        ("deliveries of a share group after the first", f"{together.redelivered:,}"),
        *((title, f"{getattr(together, field):,}") for title, field in COLUMNS if field in FAULTS),
        ("responses to bystanders", f"{result.sightings.answers:,}"),
        ("longest pause when its own processor died", worst[DIED]),
        ("longest pause otherwise", worst[BESIDE]),
        ("connections closed while their processor lived", f"{closed:,}"),
        ("memory (PSS) at the beginning; at the end", f"{megabytes(first.total)}; {megabytes(last.total)}"),
    ]
    head = f"Seed {result.orders.seed}, {result.seconds / 60:.1f} minutes of attacks."
    return f"{head}\n\n{markdown(('what', 'result'), rows)}"


def record(page: Path, words: str) -> None:
    write(page, LATEST, f"{surroundings(REPOSITORY)}\n{words}")
