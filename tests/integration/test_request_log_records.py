"""The records of a request in the request log: their number, their bytes and their codec."""

from collections import Counter

from confluent_kafka import Producer

from tests.support.deadline import deadline_s, wait_until
from tests.support.record_batches import record_batch
from tests.support.request_log import Start, rows
from tests.support.wire_client import WireClient
from tests.support.wire_messages import PRODUCE, PRODUCE_VERSION, create_topic, fetch, produce_body

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def test_a_real_client_with_each_codec(start: Start) -> None:
    broker = start()
    with WireClient(broker.port) as client:
        create_topic(client, "coded", 1)
    for codec in CODECS:
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "client.id": codec, "compression.type": codec, "linger.ms": 0}
        )
        for _ in range(3):
            producer.produce("coded", b"compressible " * 500, partition=0)
            assert producer.flush(deadline_s()) == 0

    def counted() -> Counter[tuple[str, str]]:
        return Counter((row["clientId"], row["codec"]) for row in rows(broker, "requests") if row["acks"] is not None)

    wait_until(lambda: sum(counted().values()) == 3 * len(CODECS), "all rows")
    assert counted() == {(codec, codec): 3 for codec in CODECS}
    sizes = {row["codec"]: row["recordBytes"] for row in rows(broker, "requests") if row["acks"] is not None}
    assert 6_500 < sizes["none"] < 6_700
    assert all(61 < size < 1_000 for codec, size in sizes.items() if codec != "none")


def test_of_a_produce_and_a_fetch_by_every_way(start: Start) -> None:
    """The first request of a connection is parsed, the next ones are compared with it; a fetch has no codec."""
    broker = start(num_io_threads=1)
    batches = {codec: record_batch([b"x" * 100 * (codec + 1)], codec=codec) for codec in range(len(CODECS))}
    with WireClient(broker.port) as client:
        create_topic(client, "told", 2)
        for number in range(10):
            body = produce_body([("told", 0, batches[number % 5])])
            client.call(PRODUCE, PRODUCE_VERSION, body, correlation_id=100 + number)
        several = [("told", 0, batches[0]), ("told", 1, batches[1])]
        client.call(PRODUCE, PRODUCE_VERSION, produce_body(several), correlation_id=200)
        client.call(PRODUCE, PRODUCE_VERSION, produce_body([("told", 0, b"")]), correlation_id=201)
        fetched = fetch(client, "told", 0, 0)

    def told() -> dict[int, tuple[str | None, int | None, int | None]]:
        return {
            row["correlationId"]: (row["codec"], row["recordBytes"], row["maxWaitMs"])
            for row in rows(broker, "requests")
            if row["requestApiKeyName"] in {"PRODUCE", "FETCH"}
        }

    # Before the Produce, Metadata was requested for the topic.
    wait_until(lambda: len(told()) >= 12 and len(fetched.records) in {each[1] for each in told().values()}, "all rows")
    found = told()
    for number in range(10):
        codec = number % 5
        assert found[100 + number] == (CODECS[codec], len(batches[codec]), None)
    assert found[200] == ("mixed", len(batches[0]) + len(batches[1]), None)
    assert found[201] == (None, 0, None)
    assert (None, len(fetched.records), 0) in found.values()
