"""Records of a topic over HTTP, from a real broker: the newest, from an offset, from a time, with a key."""

import json
from typing import Any
from urllib.parse import quote, urlencode

import duckdb
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.broker_process import PAGE, BrokerProcess
from tests.support.deadline import deadline_s, wait_until
from tests.support.status_page import ask
from tests.support.wire_client import WireClient
from tests.support.wire_messages import create_topic

pytestmark = pytest.mark.slow

BROKER_SETTINGS = {**PAGE, "request.log.roll.ms": 500}
BROKER_OPTIONS = {"ephemeral": False}


def look(broker: BrokerProcess, topic: str, key: bytes | None = None, **query: object) -> dict[str, Any]:
    """Return the response of the page."""
    headers = {} if key is None else {"record-key": quote(key)}
    code, _, body = ask(broker, f"/topics/{topic}/records.json?{urlencode(query)}", **headers)
    assert code == 200, body
    found: dict[str, Any] = json.loads(body)
    return found


def values(found: dict[str, Any]) -> list[str]:
    return [each["value"]["text"] for each in found["records"]]


def produce(broker: BrokerProcess, topic: str, numbers: range, partition: int = 0, **options: Any) -> None:
    """Write numbers as values, one ms after the other."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, **options})
    for number in numbers:
        producer.produce(topic, str(number), key=f"k{number % 7}", partition=partition, timestamp=1_000_000 + number)
    assert producer.flush(deadline_s()) == 0


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_newest_come_first_and_lead_to_older_and_newer_ones(
    broker: BrokerProcess, wire: WireClient, topic: str, codec: str
) -> None:
    create_topic(wire, topic, 2)
    produce(broker, topic, range(100), 0, **{"compression.type": codec})
    produce(broker, topic, range(100, 150), 1, **{"compression.type": codec})
    found = look(broker, topic, count=60)
    assert values(found) == [str(number) for number in range(149, 89, -1)]
    read = values(found)
    while found["records"]:
        found = look(broker, topic, count=60, older=found["older"])
        read += values(found)
    assert read == [str(number) for number in range(149, -1, -1)]
    newest = look(broker, topic, count=1)
    assert values(look(broker, topic, newer=newest["newer"])) == []
    produce(broker, topic, range(150, 152), 1)
    assert values(look(broker, topic, newer=newest["newer"])) == ["150", "151"]


def test_from_an_offset_and_from_a_time(broker: BrokerProcess, wire: WireClient, topic: str) -> None:
    create_topic(wire, topic, 2)
    produce(broker, topic, range(100), 0)
    produce(broker, topic, range(100, 200), 1)
    found = look(broker, topic, partition=0, offset=17, count=3)
    assert values(found) == ["17", "18", "19"]
    assert values(look(broker, topic, partition=0, newer=found["newer"], count=2)) == ["20", "21"]
    assert values(look(broker, topic, partition=0, older=found["older"], count=2)) == ["16", "15"]
    assert values(look(broker, topic, time=1_000_098, count=4)) == ["98", "99", "100", "101"]
    assert values(look(broker, topic, time=2_000_000)) == []
    assert look(broker, topic, partition=0, offset=1000)["notes"] == [
        "partition 0 has no offset 1000 yet: the next one is 100"
    ]


def test_by_key_in_both_directions(broker: BrokerProcess, wire: WireClient, topic: str) -> None:
    create_topic(wire, topic, 2)
    produce(broker, topic, range(1000))
    expected = [str(number) for number in range(3, 1000, 7)]
    assert values(look(broker, topic, b"k3", count=5)) == expected[:-6:-1]
    assert values(look(broker, topic, b"k3", offset=500, partition=0, count=2)) == ["500", "507"]
    assert values(look(broker, topic, b"k3", count=200)) == expected[::-1]
    nothing = look(broker, topic, b"another")
    assert values(nothing) == []
    assert nothing["partitions"][0]["low"] == 0


def test_bytes_headers_nulls_and_times(broker: BrokerProcess, wire: WireClient, topic: str) -> None:
    create_topic(wire, topic, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    key = bytes(range(256))
    producer.produce(topic, None, key=key, headers=[("trace", b"\xff"), ("none", None)], timestamp=12345)
    producer.produce(topic, b'{"a":1}', timestamp=12346)
    assert producer.flush(deadline_s()) == 0
    [json_, null] = look(broker, topic)["records"]
    assert (json_["value"]["kind"], json_["key"]["kind"]) == ("json", "null")
    assert null["value"]["kind"] == "null"
    assert null["key"]["text"] == key.hex(" ")
    assert null["timestamp_ms"] == 12345
    assert [(each["key"], each["value"]["kind"], each["value"]["text"]) for each in null["headers"]] == [
        ("trace", "hex", "ff"), ("none", "null", ""),
    ]  # fmt: skip
    assert len(look(broker, topic, key)["records"]) == 1


def test_what_a_consumer_does_not_see_is_not_shown(broker: BrokerProcess, wire: WireClient, topic: str) -> None:
    """Aborted and open transactions, with `committed`; markers never."""
    create_topic(wire, topic, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(deadline_s())
    for number, end in enumerate((producer.commit_transaction, producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, str(number))
        producer.flush(deadline_s())
        end(deadline_s())
    producer.begin_transaction()
    producer.produce(topic, "2")
    producer.flush(deadline_s())
    assert values(look(broker, topic)) == ["0"]
    assert values(look(broker, topic, committed=False)) == ["2", "1", "0"]
    producer.abort_transaction(deadline_s())


def test_bytes_of_headers_end_a_reading(broker: BrokerProcess, wire: WireClient, topic: str) -> None:
    create_topic(wire, topic, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "zstd"})
    for _ in range(100):
        producer.produce(topic, None, headers=[("h", b"\0" * 900_000)])
    assert producer.flush(deadline_s()) == 0
    found = look(broker, topic, count=200)
    assert 0 < len(found["records"]) < 100
    assert found["notes"] == ["stopped after 64 MiB or 3 s: not all was searched"]


def test_an_unreadable_batch_is_skipped_and_named(broker: BrokerProcess, wire: WireClient, topic: str) -> None:
    """In both directions, and with the records of the other partition."""
    create_topic(wire, topic, 2)
    for first in range(0, 30, 10):
        produce(broker, topic, range(first, first + 10), 0)
    produce(broker, topic, range(100, 110), 1)
    with (broker.data_dir / f"{topic}-0" / f"{0:020}.log").open("r+b") as log:
        at = log.read().index(b"15")
        log.seek(at)
        log.write(b"x")
    note = f"offsets 10 to 19 are unreadable: corrupt batch of {topic}-0 at offset 10: wrong checksum"
    readable = [str(number) for number in (*range(10), *range(20, 30), *range(100, 110))]
    found = look(broker, topic)
    assert (values(found), found["notes"]) == (readable[::-1], [note])
    found = look(broker, topic, time=0)
    assert (values(found), found["notes"]) == (readable, [note])
    assert values(look(broker, topic, partition=0, offset=12, count=2)) == ["20", "21"]
    assert values(look(broker, topic, b"k2", partition=0, offset=0)) == ["2", "9", "23"]


def test_a_record_beyond_the_limits_is_shown_and_hides_no_other(
    broker: BrokerProcess, wire: WireClient, topic: str
) -> None:
    create_topic(wire, topic, 1, {"max.message.bytes": 80 << 20})
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.max.bytes": 80 << 20})
    for value in (b"0", bytes(68 << 20), b"2", b"3", b"4"):
        producer.produce(topic, value)
        assert producer.flush(deadline_s()) == 0
    found = look(broker, topic)
    assert "stopped after 64 MiB or 3 s: not all was searched" in found["notes"]
    read = found["records"]
    while found["older"] != "0:0":
        found = look(broker, topic, older=found["older"])
        assert found["records"]
        read += found["records"]
    assert [each["offset"] for each in read] == [4, 3, 2, 1, 0]
    assert (read[3]["value"]["size"], read[3]["value"]["is_cut"]) == (68 << 20, True)


def test_deleted_records_and_an_empty_topic(broker: BrokerProcess, wire: WireClient, topic: str) -> None:
    create_topic(wire, topic, 1)
    empty = look(broker, topic)
    assert (empty["records"], empty["notes"]) == ([], [])
    produce(broker, topic, range(10))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for done in admin.delete_records([TopicPartition(topic, 0, 6)]).values():
        done.result(deadline_s())
    found = look(broker, topic, offset=2)
    assert values(found) == ["6", "7", "8", "9"]
    assert found["notes"] == ["partition 0 starts at 6: older offsets were deleted"]
    assert values(look(broker, topic)) == ["9", "8", "7", "6"]


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("nowhere/records.json", 404, "unknown topic nowhere"),
        ("nowhere/settings.json", 404, "no such topic"),
        ("bad%20name/records.json", 422, "pattern"),
        ("t/records.json?older=1", 422, "older"),
        ("t/records.json?count=201", 422, "count"),
    ],
)
def test_wrong_requests_get_a_reason(broker: BrokerProcess, path: str, status: int, text: str) -> None:
    code, _, body = ask(broker, f"/topics/{path}")
    assert code == status
    assert text in body.decode()


def test_an_unknown_partition_gets_a_reason(broker: BrokerProcess, wire: WireClient, topic: str) -> None:
    create_topic(wire, topic, 2)
    code, _, body = ask(broker, f"/topics/{topic}/records.json?partition=2")
    assert (code, body.decode()) == (404, f"topic {topic} has no partition 2: it has 0 to 1\n")


def test_settings_of_a_topic_and_their_source(broker: BrokerProcess, topic: str) -> None:
    broker.command("topic", "create", topic, "--config", "retention.ms=86400000")
    code, _, body = ask(broker, f"/topics/{topic}/settings.json")
    assert code == 200
    found = {each["name"]: each for each in json.loads(body)}
    assert (found["retention.ms"]["value"], found["retention.ms"]["is_default"]) == ("86400000", False)
    assert found["cleanup.policy"]["is_default"]


def test_neither_records_nor_keys_are_logged_or_stored(broker: BrokerProcess, wire: WireClient, topic: str) -> None:
    create_topic(wire, topic, 1)
    key, value = f"key-{topic}".encode(), f"value-{topic}".encode()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, value, key=key)
    assert producer.flush(deadline_s()) == 0
    path = f"/topics/{topic}/records.json"
    code, headers, body = ask(broker, path, **{"record-key": key.decode()})
    assert (code, value in body) == (200, True)
    assert "no-store" in headers["cache-control"]
    log = broker.data_dir / "request-log" / "requests"

    def rows() -> list[Any]:
        if not [*log.glob("**/*.parquet")]:
            return []
        files = duckdb.read_parquet(f"{log}/**/*.parquet", union_by_name=True)
        return (
            files.filter(f"clientId = 'rotunda-page' AND topic = '{topic}'").project("COLUMNS(*)::VARCHAR").fetchall()
        )

    logged = broker.log_text() + str(wait_until(rows, "the page's fetch in the request log"))
    for secret in (key, value):
        assert secret.decode() not in logged
