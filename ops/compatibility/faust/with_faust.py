"""Faust: tables that are restored from their changelog topics, workers killed at rest and midway."""

import json

from applications import (
    COUNT,
    application,
    committed,
    fill,
    new_topics,
    records,
    require_running_totals,
    scratch,
    taken,
    timestamp_of,
    topics_of,
    wait_for,
    window_sums,
)
from checks import require, run, unique


def value_of(number: int) -> dict[str, int]:
    return {"number": number, "time_ms": timestamp_of(number)}


def tables(bootstrap: str) -> None:
    """Count and sum in two lives of a worker: the second begins with the tables of the first, which was killed."""
    source, counts, windows = new_topics(bootstrap, "numbers", "counts", "windows")
    name, half = unique("faust"), COUNT // 2
    with scratch() as data, application(__file__, bootstrap, name, source, counts, windows, data) as worker:
        fill(bootstrap, source, records(0, half, value_of))
        # Faust commits the records it has read without waiting for the records it sends.
        wait_for("the first half is committed", (worker,), lambda: taken(bootstrap, name, source) >= half)
        for topic in (counts, windows, f"{name}-totals-changelog", f"{name}-sums-changelog"):
            wait_for(topic, (worker,), lambda topic=topic: len(committed(bootstrap, topic)) >= half)
        worker.kill()
        fill(bootstrap, source, records(half, COUNT, value_of))
        worker.start()
        wait_for("all are counted", (worker,), lambda: len(committed(bootstrap, windows)) >= COUNT)
        worker.stop()
    require_running_totals([(key, json.loads(value)["count"]) for key, value in committed(bootstrap, counts)], COUNT)
    sums = {}
    for key, value in committed(bootstrap, windows):
        window = json.loads(value)
        sums[key, window["start"]] = window["sum"]
    require(sums == window_sums(COUNT), f"{len(sums)} windows, with other sums than their records'")
    changelogs = [topic for topic in topics_of(bootstrap) if topic.startswith(name) and topic.endswith("-changelog")]
    require(len(changelogs) == 2, f"changelogs {changelogs}")


def at_least_once(bootstrap: str) -> None:
    """Kill a worker midway: the next one resumes from the committed offset, and no record is left out."""
    source, counts, windows = new_topics(bootstrap, "numbers", "counts", "windows")
    name, half = unique("faust"), COUNT // 2
    with scratch() as data, application(__file__, bootstrap, name, source, counts, windows, data) as worker:
        fill(bootstrap, source, records(0, half, value_of))
        wait_for("some are counted", (worker,), lambda: committed(bootstrap, counts))
        worker.kill()
        fill(bootstrap, source, records(half, COUNT, value_of))
        worker.start()
        wait_for("all are counted", (worker,), lambda: numbers(bootstrap, counts) == set(range(COUNT)))
        worker.stop()


def numbers(bootstrap: str, topic: str) -> set[int]:
    return {json.loads(value)["number"] for _, value in committed(bootstrap, topic)}


if __name__ == "__main__":
    run({"tables, restored after a worker was killed": tables, "at least once, a worker killed": at_least_once})
