"""A Faust application: counts records by key and sums them in windows, in tables that changelog topics restore.

Each record is counted at least once: Faust's exactly_once loses and repeats single records when a worker ends, against
Apache Kafka too.

Command line: bootstrap address, application id, topic read, topic of counts, topic of windows, data directory.
"""

import sys

import faust

PARTITIONS = 4
WINDOW_SECONDS = 10

bootstrap, name, source, counts, windows, data = sys.argv[1:7]

app = faust.App(
    name,
    broker=f"kafka://{bootstrap}",
    store="memory://",
    topic_partitions=PARTITIONS,
    topic_replication_factor=1,
    consumer_auto_offset_reset="earliest",
    broker_commit_interval=0.3,
    broker_session_timeout=6.0,
    broker_heartbeat_interval=0.5,
    stream_recovery_delay=0.0,
    stream_wait_empty=False,
    web_enabled=False,
    datadir=data,
)


class Numbered(faust.Record):
    """The value of each record."""

    number: int
    time_ms: int


numbers = app.topic(source, key_type=str, value_type=Numbered, value_serializer="json")
counted = app.topic(counts, key_type=str, value_serializer="json")
summed = app.topic(windows, key_type=str, value_serializer="json")
totals = app.Table("totals", default=int, partitions=PARTITIONS)
sums = app.Table("sums", default=int, partitions=PARTITIONS)


@app.agent(numbers)
async def count(stream: faust.StreamT) -> None:
    """Count each record, and send its place in its key's count and the sum of its window so far."""
    async for key, record in stream.items():
        totals[key] += 1
        start_ms = record.time_ms - record.time_ms % (WINDOW_SECONDS * 1000)
        sums[f"{key}/{start_ms}"] += record.number
        await counted.send(key=key, value={"count": totals[key], "number": record.number})
        await summed.send(key=key, value={"start": start_ms, "sum": sums[f"{key}/{start_ms}"]})


if __name__ == "__main__":
    sys.argv = [sys.argv[0], "worker", "-l", "info", "--without-web"]
    app.main()
