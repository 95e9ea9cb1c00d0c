"""The request log of a running broker: every request once, and a count of the missing ones."""

import itertools
import json
import struct
import threading
from collections import Counter
from pathlib import Path

import pyarrow as pa

from rotunda.broker.request_log.part_files import dataset_path, finished
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import wait_until
from tests.support.exposition import Scraper
from tests.support.record_batches import record_batch
from tests.support.request_log import Start, read, rows, set_while_running
from tests.support.wire_client import WireClient, sized
from tests.support.wire_messages import PRODUCE, create_topic, fetch, produce_body

API_VERSIONS = 18
PRODUCE_VERSION = 7
UNKNOWN_TOPIC_OR_PARTITION = 3
REQUESTS = 40_000
CONNECTIONS = 4
IN_FLIGHT = 50
SENT_AT_ONCE = 500
#: Rows: with those that are sent at once, less than half of a ring, above which only samples are recorded.
MOST_ON_THE_WAY = 10_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PHASES = ("requestQueueTimeUs", "localTimeUs", "remoteTimeUs", "responseQueueTimeUs", "sendTimeUs")


def frame_of(api_key: int, version: int, correlation_id: int, body: bytes, client_id: str, tags: bytes = b"") -> bytes:
    """Return a whole request of a client that identifies itself."""
    name = client_id.encode()
    return sized(struct.pack(">hhih", api_key, version, correlation_id, len(name)) + name + tags + body)


def client_of(broker: BrokerProcess) -> WireClient:
    return WireClient(broker.port)


def test_each_request_of_the_clients_has_one_row(start: Start) -> None:
    """users.md rows 5 and 6: 40,000 requests, each of them once, under its correlation id and its client id."""
    broker = start(request_log_rows_per_second=0, request_log_roll_ms=500)
    with client_of(broker) as client:
        create_topic(client, "counted", 1)
    batch = record_batch([b"x" * 10, b"y" * 10])
    each = REQUESTS // CONNECTIONS
    scraper = Scraper(broker)

    bursts = itertools.count()

    def recorder_keeps_up() -> None:
        """However busy the machine: no more is on its way than the ring has room for, so nothing is left out."""
        sent = CONNECTIONS * SENT_AT_ONCE * next(bursts)
        wait_until(
            lambda: scraper.scrape().total("recorder_rows_written_total") >= sent - MOST_ON_THE_WAY,
            "a recorder that keeps up",
        )

    together = threading.Barrier(CONNECTIONS, recorder_keeps_up)

    def send(number: int) -> None:
        body = produce_body([("counted", 0, batch)])
        with client_of(broker) as client:
            for first in range(0, each, IN_FLIGHT):
                if not first % SENT_AT_ONCE:
                    together.wait()
                frames = (
                    frame_of(PRODUCE, PRODUCE_VERSION, correlation, body, f"client-{number}")
                    for correlation in range(first, first + IN_FLIGHT)
                )
                client.send(b"".join(frames))
                for correlation in range(first, first + IN_FLIGHT):
                    assert client.receive_frame()[:4] == correlation.to_bytes(4, "big")

    threads = [threading.Thread(target=send, args=(number,)) for number in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    broker.stop()
    table = read(broker, "requests")
    produced = table.filter(pa.compute.equal(table["requestApiKeyName"], "PRODUCE"))
    pairs = Counter(zip(produced["clientId"].to_pylist(), produced["correlationId"].to_pylist(), strict=True))
    lost = sum(gap["rows"] for gap in rows(broker, "gaps"))
    assert lost == 0
    sent = {(f"client-{number}", correlation) for number in range(CONNECTIONS) for correlation in range(each)}
    weights = Counter(produced["sampleWeight"].to_pylist())
    assert weights == {1: REQUESTS}
    assert set(pairs) == sent
    assert set(pairs.values()) == {1}
    assert (set(produced["topic"].to_pylist()), set(produced["records"].to_pylist())) == ({"counted"}, {2})
    total = produced["totalTimeUs"].to_numpy()
    assert (sum(produced[phase].to_numpy() for phase in PHASES) == total).all()
    closed = [row for row in rows(broker, "connections") if row["event"] == "close"]
    by_client = {row["clientId"]: row["requests"] for row in closed if row["clientId"].startswith("client-")}
    assert by_client == {f"client-{number}": each for number in range(CONNECTIONS)}


def test_a_killed_broker_leaves_a_gap_of_unknown_size(start: Start) -> None:
    broker = start(request_log_roll_ms=3_600_000)
    with client_of(broker) as client:
        client.call(API_VERSIONS, 0, correlation_id=1)
        wait_until((broker.data_dir / "request-log" / ".running").exists, "the recorder has begun")
        broker.kill_everything()
    broker.start()
    broker.stop()
    assert [(gap["cause"], gap["rows"]) for gap in rows(broker, "gaps")] == [("broker_killed", None)]


def test_errors_fetches_and_the_command_line(start: Start) -> None:
    """D20, users.md row 22: failed and slow requests can be queried; no payload is in the files."""
    broker = start(request_log_slow_threshold_ms=0)
    with client_of(broker) as client:
        create_topic(client, "known", 1)
        body = produce_body([("unknown", 0, record_batch([b"secret contents"]))])
        client.call(PRODUCE, PRODUCE_VERSION, body, correlation_id=7)
        fetch(client, "known", 0, 0)

    def has_all() -> bool:
        names = [row["requestApiKeyName"] for row in sorted(rows(broker, "requests"), key=lambda row: row["time"])]
        return "PRODUCE" in names and names[-1] == "FETCH"

    wait_until(has_all, "all rows")
    done = broker.command("requests", "--errors", "--json")
    # Until the topic was open, fetches from it failed as well.
    [failed] = [row for row in json.loads(done.stdout) if row["requestApiKeyName"] == "PRODUCE"]
    assert (failed["errorName"], failed["correlationId"]) == ("UNKNOWN_TOPIC_OR_PARTITION", 7)
    slowest = json.loads(broker.command("requests", "--slow", "--json", "--limit", "2").stdout)
    assert slowest[0]["totalTimeUs"] >= slowest[1]["totalTimeUs"]
    fetched = json.loads(broker.command("requests", "--api", "fetch", "--topic", "known", "--json").stdout)
    assert {(row["minBytes"] is not None, row["isolationLevel"]) for row in fetched} == {(True, 0)}
    assert {row["records"] for row in fetched} == {0}
    table = broker.command("requests").stdout.splitlines()
    assert table[0].split()[:2] == ["TIME", "API"]
    assert broker.command("requests", "--since", "soon").returncode == 2
    logged = b"".join(path.read_bytes() for path in (broker.data_dir / "request-log").rglob("*.parquet"))
    assert b"secret" not in logged


def test_records_of_a_fetch_are_the_offsets_that_it_brings(start: Start) -> None:
    """D20, users.md row 6: counted without a look at records, from where the fetch begins, across partitions."""
    broker = start()
    with client_of(broker) as client:
        create_topic(client, "read", 2)
        for partition, count in ((0, 3), (0, 4), (1, 5)):
            values = [b"x" * 4_000 * (1 + partition)] * count
            client.call(PRODUCE, PRODUCE_VERSION, produce_body([("read", partition, record_batch(values))]))
        for offset in (0, 2, 7):
            fetch(client, "read", 0, offset)
        fetch(client, "read", 1, 1)

    def counts() -> list[tuple[int, int]]:
        found = [row for row in rows(broker, "requests") if row["requestApiKeyName"] == "FETCH"]
        return [(row["partition"], row["records"]) for row in sorted(found, key=lambda row: row["time"])]

    # Before them, Metadata was requested for the partitions.
    wait_until(lambda: (1, 4) in counts(), "the fetches")
    assert counts()[-4:] == [(0, 7), (0, 5), (0, 0), (1, 4)]


def recorded(broker: BrokerProcess) -> set[int]:
    """Return the correlation ids of a client's requests that are in files."""
    return {row["correlationId"] for row in rows(broker, "requests") if row["clientId"] == "ours"}


def test_settings_change_while_the_broker_runs_whatever_the_recorder_does(start: Start) -> None:
    """A log that was off starts when it is enabled, and old files are deleted at once when the retention is lowered."""
    broker = start(request_log_enable="false")

    def call(correlation_id: int) -> None:
        with client_of(broker) as client:
            client.send(frame_of(API_VERSIONS, 0, correlation_id, b"", "ours"))
            client.receive_frame()

    set_while_running(broker, request_log_enable="true")
    call(1)
    wait_until(lambda: recorded(broker) == {1}, "the row of a log that was switched on")
    set_while_running(broker, request_log_enable="false")
    # The recorder makes room for another one when it has had nothing to do for long, or when it dies.
    broker.kill("recorder", 0)
    set_while_running(broker, request_log_enable="true")
    call(2)
    wait_until(lambda: recorded(broker) == {1, 2}, "the row of a log that was switched on again")
    broker.kill("recorder", 0)
    set_while_running(broker, request_log_enable="false", request_log_retention_bytes=1)
    requests = dataset_path(broker.data_dir / "request-log", "requests")
    wait_until(lambda: not list(finished(requests)), "files that are not to be kept any more")


def test_a_broker_that_keeps_nothing_keeps_its_log_there_too(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, {}).start()
    directory = Path(broker.status()["data_dir"])
    with client_of(broker) as client:
        client.call(API_VERSIONS, 0)
    wait_until((directory / "request-log" / ".running").exists, "the recorder has begun")
    broker.stop()
    assert not directory.exists()


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
