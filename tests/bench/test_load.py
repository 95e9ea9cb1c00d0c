"""The load against a real broker, and against one that stops; the parts left out; the command's error messages."""

import asyncio
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rotunda.broker.apis.table import APIS
from rotunda.broker.bench.load import Load
from rotunda.broker.bench.profile import KNOWN_VERSION, Event
from rotunda.broker.bench.requests import KINDS, BenchTopic, RequestMaker
from rotunda.broker.bench.tally import HEADERS, Tallies, quantile_ms
from rotunda.broker.client.admin import topics
from rotunda.broker.client.network.blocking_client import BlockingClient
from rotunda.broker.clock import SystemClock
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from tests.support.broker_process import BrokerProcess

PRODUCE, FETCH, METADATA, JOIN_GROUP = 0, 1, 3, 11
NAMES = {PRODUCE: "PRODUCE", FETCH: "FETCH", METADATA: "METADATA", JOIN_GROUP: "JOIN_GROUP"}


def event(kind: str, api: int | None = None, **columns: object) -> Event:
    row: dict[str, object] = dict.fromkeys(Event._fields)
    row |= {"atUs": 0, "event": kind, "connection": 0, "clientId": "app", "repeat": 1, "requestApiKey": api}
    row |= {"requestApiKeyName": NAMES.get(api or 0), "requestApiVersion": 9} | columns
    return Event(**row)  # type: ignore[arg-type]


def produce(**columns: object) -> Event:
    about = {"topic": "t", "partition": 1, "partitionCount": 2, "records": 10, "recordBytes": 1000, "acks": 1}
    return event("request", PRODUCE, **(about | columns))


def run(port: int, events: list[Event], ranges: dict[int, tuple[int, int]], topic: BenchTopic) -> Tallies:
    tallies = Tallies(events)
    clock = SystemClock()
    maker = RequestMaker({"t": topic}, "bench-", 1.0, clock)
    asyncio.run(Load(("127.0.0.1", port), maker, ranges, clock, 1.0).run(events, tallies))
    return tallies


@pytest.mark.parametrize("topic", ["t", None])
@pytest.mark.parametrize("api", KINDS)
def test_each_kind_is_written_in_each_version_with_and_without_a_topic(api: int, topic: str | None) -> None:
    maker = RequestMaker({"t": BenchTopic("t", UUID(int=7).bytes, 2)}, "bench-", 1.0, SystemClock())
    asked = event("request", api, topic=topic, partition=1, partitionCount=2, records=3, recordBytes=100)
    fields = maker.fields(asked, {})
    if fields is None:
        assert (api, topic) == (ApiKey.PRODUCE, None)
        return
    for version in range(APIS[api].min_version, KINDS[api].newest + 1):
        assert codec.encode_request(api, version, 1, "app", fields)


def test_each_kind_of_request(broker: BrokerProcess) -> None:
    """Produce without a response, repeated, without records; a Fetch that continues; an API the bench cannot send."""
    with BlockingClient(broker.bootstrap) as client:
        topics.create(client, "kinds-t", 2, -1, {})
        ranges = dict(client.ranges)
    fetch = event("request", FETCH, topic="t", partition=0, partitionCount=2, maxWaitMs=5000, minBytes=1, connection=1)
    events = [
        event("open"), produce(), produce(acks=0), produce(repeat=3), produce(records=0),
        fetch, fetch._replace(requestApiVersion=4), fetch._replace(requestApiVersion=17, maxWaitMs=0),
        event("request", METADATA), event("request", JOIN_GROUP), event("close"),
    ]  # fmt: skip
    with BlockingClient(broker.bootstrap) as client:
        topic_id = topics.describe(client, "kinds-t").topic_id
    tallies = run(broker.port, events, ranges, BenchTopic("kinds-t", UUID(topic_id).bytes, 2))
    of = tallies.by_api
    assert (of[PRODUCE].sent, of[PRODUCE].received, of[PRODUCE].left_out, of[PRODUCE].errors) == (5, 4, 1, 0)
    assert (of[FETCH].sent, of[FETCH].received, of[FETCH].errors) == (3, 3, 0)
    assert (of[JOIN_GROUP].sent, of[JOIN_GROUP].left_out, of[METADATA].received) == (0, 1, 1)
    # Each Fetch continues at the end of the one before: no record is read twice.
    assert of[FETCH].received_bytes < 5 * 1000 + 1000
    assert (tallies.connections, tallies.lost_connections) == (2, 0)


def test_a_broker_that_goes_away_loses_connections_and_nobody_waits() -> None:
    async def against_one_that_closes() -> Tallies:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        events = [event("open"), *(event("request", FETCH, connection=number % 2) for number in range(6))]
        tallies, clock = Tallies(events), SystemClock()
        maker = RequestMaker({}, "bench-", 1.0, clock)
        await Load(("127.0.0.1", port), maker, {FETCH: (4, 12)}, clock, 1.0).run(events, tallies)
        server.close()
        return tallies

    tallies = asyncio.run(against_one_that_closes())
    assert tallies.lost_connections == 2
    assert tallies.total("received") == 0


def test_what_the_command_complains_of(broker: BrokerProcess, tmp_path: Path) -> None:
    with BlockingClient(broker.bootstrap) as client:
        topics.create(client, "few-t", 1, -1, {})
    row = produce()._asdict() | {"profileVersion": KNOWN_VERSION}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "profile.parquet")
    words = ["bench", "--profile", str(tmp_path / "profile.parquet"), "--bootstrap", broker.bootstrap]
    done = broker.command(*words, "--topic-prefix", "few-")
    assert (done.returncode, "has 1 partition and the profile needs 2" in done.stderr) == (1, True)
    done = broker.command("bench", "--profile", str(tmp_path / "none"), "--bootstrap", broker.bootstrap)
    assert (done.returncode, "make one with: rotunda report replay" in done.stderr) == (1, True)
    assert broker.command(*words, "--speed", "0").returncode == 2
    done = broker.command(*words)
    assert done.returncode == 0
    assert "PRODUCE" in done.stdout
    assert "1 response" in done.stdout


def test_quantiles_and_rows() -> None:
    assert [quantile_ms(list(range(1000, 11_000, 1000)), share) for share in (0.5, 0.99, 1)] == [5.0, 10.0, 10.0]
    assert quantile_ms([7000], 0.5) == 7.0
    assert quantile_ms([], 0.5) is None
    (tally,) = Tallies([produce()]).ordered()
    assert len(tally.row(1.0, 1.0)) == len(HEADERS)
