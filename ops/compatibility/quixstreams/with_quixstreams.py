"""Quix Streams with exactly-once: stateful counts and windows over changelog topics, an instance killed midway."""

import json
from functools import partial

from applications import (
    COUNT,
    KEYS,
    WINDOW_MS,
    Record,
    application,
    committed,
    fill,
    key_of,
    new_topics,
    records,
    require_running_totals,
    scratch,
    timestamp_of,
    topics_of,
    wait_for,
    window_sums,
)
from checks import require, run, unique


def value_of(number: int) -> dict[str, int]:
    return {"number": number}


def closing_records(count: int) -> list[Record]:
    """Return a record a key, so late that every window before it closes."""
    late = timestamp_of(count) + 10 * WINDOW_MS
    return [(key_of(number), json.dumps({"number": 0}).encode(), late) for number in range(KEYS)]


def counts_and_windows(bootstrap: str, deaths: bool) -> None:
    """Count and sum while instances join and die; every count and window exists once."""
    source, counts, windows = new_topics(bootstrap, "numbers", "counts", "windows")
    group, half = unique("quix"), COUNT // 2
    with scratch() as first_state, scratch() as second_state:
        arguments = (bootstrap, group, source, counts, windows)
        first = application(__file__, *arguments, first_state)
        # The second has no state of its own: the first one's counts are restored from the changelog.
        second = application(__file__, *arguments, second_state)
        with first:
            fill(bootstrap, source, records(0, half, value_of))
            wait_for("some are counted", (first,), lambda: committed(bootstrap, counts))
            fill(bootstrap, source, records(half, COUNT, value_of))
            (first.kill if deaths else first.stop)()
            with second:
                fill(bootstrap, source, closing_records(COUNT))
                total = COUNT + KEYS
                wait_for("all are counted", (second,), lambda: len(committed(bootstrap, counts)) >= total)
                wanted = window_sums(COUNT)
                wait_for("all windows", (second,), lambda: len(committed(bootstrap, windows)) >= len(wanted))
                second.stop()
    found = [(key, json.loads(value)["count"]) for key, value in committed(bootstrap, counts)]
    require_running_totals(found, total)
    closed = [(key, json.loads(value)) for key, value in committed(bootstrap, windows)]
    sums = {(key, window["start"]): window["value"] for key, window in closed}
    require(sums == wanted, f"{len(sums)} windows, of which {len(dict(sums.items() - wanted.items()))} are wrong")
    require(len(closed) == len(wanted), f"{len(closed)} windows instead of {len(wanted)}")
    changelogs = [name for name in topics_of(bootstrap) if name.startswith(f"changelog__{group}")]
    require(len(changelogs) == 2, f"changelogs {changelogs}")


if __name__ == "__main__":
    run(
        {
            "exactly-once: counts and windows over a restart": partial(counts_and_windows, deaths=False),
            "exactly-once: counts and windows, an instance killed": partial(counts_and_windows, deaths=True),
        }
    )
