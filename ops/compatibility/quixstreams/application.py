"""A Quix Streams application: counts records by key and sums them in windows, exactly once.

Command line: bootstrap address, group, topic read, topic of counts, topic of windows, state directory.
"""

import sys

from quixstreams import Application, State

WINDOW_MS = 10_000


def count(value: dict, state: State) -> dict:
    """Return the record with its number in its key's count, which is stored in a changelog topic."""
    number = state.get("count", 0) + 1
    state.set("count", number)
    return {"count": number, "number": value["number"]}


def main() -> None:
    bootstrap, group, source, counts, windows, state_dir = sys.argv[1:]
    app = Application(
        bootstrap,
        consumer_group=group,
        processing_guarantee="exactly-once",
        auto_offset_reset="earliest",
        commit_interval=0.3,
        state_dir=state_dir,
        # A killed member is removed soon, and its open transaction does not hold up readers for long.
        consumer_extra_config={"session.timeout.ms": 6000, "heartbeat.interval.ms": 500},
        producer_extra_config={"transaction.timeout.ms": 10000},
    )
    frame = app.dataframe(app.topic(source))
    frame.apply(count, stateful=True).to_topic(app.topic(counts))
    frame.apply(lambda value: value["number"]).tumbling_window(WINDOW_MS, grace_ms=WINDOW_MS).sum().final().to_topic(
        app.topic(windows)
    )
    app.run()


if __name__ == "__main__":
    main()
