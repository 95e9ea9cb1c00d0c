"""`rotunda requests` over the files of several hours: filters, order, and how far it has searched."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rotunda.broker.cli.main import main
from rotunda.broker.request_log.file_reader import Order, Query, search
from rotunda.broker.request_log.part_files import DIRECTORY, HOUR_US
from tests.support.recorder_bench import CLIENT, WALL_MS, RecorderBench, client_text, rows_of

PRODUCE, API_VERSIONS = 0, 18
NOT_LEADER = 6
HOURS, ROWS = 4, 6
#: The hour of the first rows.
FIRST_US = WALL_MS * 1000 // HOUR_US * HOUR_US

Run = Callable[..., tuple[list[dict[str, Any]], str]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Write three requests of each of two clients in each of four hours, later ones being slower."""
    bench = RecorderBench(tmp_path / DIRECTORY)
    bench.texts[CLIENT + 1] = client_text(CLIENT + 1, "Billing-7")
    for hour in range(HOURS):
        ours = rows_of(bench.clock, 3, (0, 1_000 * (hour + 1), 0, 0, 0), api_key=PRODUCE, partition_row=0)
        ours["error_code"][0] = NOT_LEADER
        theirs = rows_of(bench.clock, 3, api_key=API_VERSIONS, client=CLIENT + 1)
        bench.push(ours)
        bench.push(theirs)
        bench.run_once()
        bench.recorder.finish()
        bench.clock.advance_ms(3_600_000)
    return bench.root


@pytest.fixture
def run(root: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs the command and returns its rows and its notes."""

    def run(*arguments: str) -> tuple[list[dict[str, Any]], str]:
        assert main(["requests", "--data-dir", str(root.parent), "--since", "2023-01-01", "--json", *arguments]) == 0
        done = capsys.readouterr()
        return json.loads(done.out), done.err

    return run


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ((), HOURS * ROWS),
        (("--client", "someone"), 12),
        (("--client", "billing-*"), 12),
        (("--client", "billing-7"), 0),
        (("--client", "*.*"), 0),
        (("--api", "ApiVersions"), 12),
        (("--api", "api_v*"), 12),
        (("--topic", "a"), 12),
        (("--topic", "*"), 12),
        (("--user", "ANONYMOUS"), 24),
        (("--user", "alice"), 0),
        (("--error", "not_leader_or_follower"), 4),
        (("--error", "*"), 4),
        (("--errors",), 4),
        (("--slower-than", "3"), 6),
        (("--slower-than", "3", "--errors", "--until", "2023-11-15T01:00"), 1),
    ],
)
def test_filters(run: Run, arguments: tuple[str, ...], count: int) -> None:
    rows, notes = run(*arguments)
    assert len(rows) == count
    assert notes.startswith("rotunda: searched ") == bool(notes)
    assert ("no matching request" in notes) == (count == 0)


def test_the_latest_are_found_without_reading_older_hours(run: Run) -> None:
    rows, notes = run("--limit", "2")
    assert {row["time"][:13] for row in rows} == {"2023-11-15T01"}
    assert notes == (
        "rotunda: searched 12 recorded requests since 2023-11-15T00:00:00; --limit 2 is reached, more may match\n"
    )
    assert run("--client", "someone", "--limit", "12")[1].startswith(
        "rotunda: searched 24 recorded requests since 2023"
    )


def test_a_search_that_needs_longer_ends_with_its_reach(root: Path, run: Run) -> None:
    rows, notes = run("--timeout", "0")
    assert rows == []
    assert "searched 0 recorded requests since 2023-11-15T02:00:00; older ones need more than --timeout 0" in notes
    batches = iter([False, False, True])
    found = search(root, "requests", Query(0), Order("totalTimeUs", 100), lambda: next(batches))
    assert (len(found.rows), found.read, found.since_us) == (2 * ROWS, 2 * ROWS, FIRST_US + 2 * HOUR_US)
