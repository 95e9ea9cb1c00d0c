"""`rotunda consume` against a whole broker: like kcat, byte for byte, and its behaviour at ends and signals."""

import json
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient

from ops.free_ports import free_ports
from tests.cli.record_commands import WHOLE, consumed, kcat, read_by_kcat, rotunda, started
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s, wait_until

BROKER_SETTINGS = {"group.initial.rebalance.delay.ms": 0, "transaction.state.log.num.partitions": 2}
NOW_MS = int(time.time() * 1000)


def fill(broker: BrokerProcess, topic: str, partitions: int = 1, count: int = 10, first: int = 0) -> None:
    """Write values from `first` on in turns to the partitions, a second apart, the last one now."""
    broker.command("topic", "create", topic, "--partitions", str(partitions))
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for number in range(count):
        at = NOW_MS - (count - 1 - number) * 1000
        producer.produce(topic, str(first + number), f"k{number}", partition=number % partitions, timestamp=at)
    assert producer.flush(deadline_s()) == 0


def values(text: bytes) -> list[int]:
    return [int(line) for line in text.split()]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_kcat_writes_is_read_byte_for_byte(broker: BrokerProcess, topic: str, codec: str) -> None:
    """Keys, values and headers of any bytes, null and empty ones; each codec."""
    seed = random.randrange(1 << 30)
    rng = random.Random(seed)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": codec})

    def some() -> bytes | None:
        return rng.choice((None, b"", rng.randbytes(rng.randrange(1, 300)), b"text" * 50))

    for _ in range(300):
        producer.produce(topic, some(), some(), headers=[("h", b"\xff" + rng.randbytes(3).hex().encode()), ("n", None)])
    assert producer.flush(deadline_s()) == 0
    data = b"k\xff:v\0\n:only\nno key\n"
    assert kcat(broker.bootstrap, "-P", "-t", topic, "-K", ":", "-H", "a=b", data=data).code == 0
    found = consumed(broker.bootstrap, topic, "-f", WHOLE)
    assert found == read_by_kcat(broker.bootstrap, topic, "-f", WHOLE), seed
    assert found.count(b",a=b|") == 3


@pytest.mark.parametrize(
    "options",
    [
        (), ("-K", ":"), ("-K", r"\t", "-Z"), ("-D", ";"), ("-D", r"\x01", "-K", "::"), ("-c", "3"), ("-p", "1"),
        ("-o", "2"), ("-o", "-2"), ("-o", "beginning"), ("-o", "end"), ("-o", f"s@{NOW_MS - 4000}"), ("-Z",),
        ("-f", r"%t[%p]@%o %k=%s %T %S %R %K %h %%\n"), ("-f", r"\x41\065%s"),
    ],
)  # fmt: skip
def test_options_that_kcat_has_do_the_same(broker: BrokerProcess, topic: str, options: tuple[str, ...]) -> None:
    fill(broker, topic, 2, 10)
    null = Producer({"bootstrap.servers": broker.bootstrap})
    null.produce(topic, None, None, partition=0, timestamp=NOW_MS)
    assert null.flush(deadline_s()) == 0
    # Partitions arrive in any order.
    found, others = consumed(broker.bootstrap, topic, *options), read_by_kcat(broker.bootstrap, topic, *options)
    if "-c" in options:
        assert found.count(b"\n") == others.count(b"\n") == 3
    else:
        assert sorted(found) == sorted(others)
        assert len(found) == len(others)


def test_where_reading_begins_and_ends(broker: BrokerProcess, topic: str) -> None:
    fill(broker, topic, 2, 20)
    read = broker.bootstrap, topic
    assert values(consumed(*read)) != []
    assert sorted(values(consumed(*read))) == list(range(20))
    assert values(consumed(*read, "-p", "1")) == list(range(1, 20, 2))
    assert sorted(values(consumed(*read, "-p", "0,1", "--from", "-3"))) == list(range(14, 20))
    assert sorted(values(consumed(*read, "--from", "8"))) == [16, 17, 18, 19]
    assert sorted(values(consumed(*read, "--from", f"@{NOW_MS - 4500}"))) == [15, 16, 17, 18, 19]
    assert sorted(values(consumed(*read, "--until", f"@{NOW_MS - 15_000}"))) == [0, 1, 2, 3]
    assert values(consumed(*read, "--from", "500")) == []
    assert len(values(consumed(*read, "--max-messages", "7"))) == 7
    assert sorted(values(consumed(*read, "--from", "1h"))) == list(range(20))


def test_several_topics_and_expressions(broker: BrokerProcess, topic: str) -> None:
    for name in ("a", "b"):
        fill(broker, f"{topic}-{name}", count=2)
    found = consumed(broker.bootstrap, f"^{topic}-.$", "-f", r"%t %s\n")
    assert sorted(found.decode().split("\n")[:-1]) == [f"{topic}-{name} {n}" for name in "ab" for n in range(2)]
    assert len(values(consumed(broker.bootstrap, f"{topic}-a", "-t", f"{topic}-b"))) == 4


def test_records_of_aborted_transactions(broker: BrokerProcess, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions()
    for number in range(4):
        producer.begin_transaction()
        producer.produce(topic, str(number))
        producer.flush()
        (producer.abort_transaction if number % 2 else producer.commit_transaction)()
    producer.begin_transaction()
    producer.produce(topic, "9")
    producer.flush()
    assert values(consumed(broker.bootstrap, topic)) == [0, 2]
    assert values(consumed(broker.bootstrap, topic, "--isolation-level", "read_uncommitted")) == [0, 1, 2, 3, 9]


def test_json_has_everything(broker: BrokerProcess, topic: str) -> None:
    fill(broker, topic, count=1)
    line = json.loads(consumed(broker.bootstrap, topic, "--json"))
    assert line == {
        "topic": topic, "partition": 0, "offset": 0, "timestamp": NOW_MS, "timestamp_type": "create", "key": "k0",
        "value": "0", "headers": [],
    }  # fmt: skip
    assert json.loads(consumed(broker.bootstrap, topic, "--json", "--base64"))["key"] == {"base64": "azA="}


def test_following_through_the_deaths_of_handlers(broker: BrokerProcess, topic: str) -> None:
    fill(broker, topic, 4, 4)
    reader = started(broker.bootstrap, "consume", topic, "--follow")
    assert reader.stdout is not None
    found = [int(reader.stdout.readline()) for _ in range(4)]
    for turn in range(3):
        broker.kill("handler", turn % 2)
        fill(broker, topic, 4, 40)
        found += [int(reader.stdout.readline()) for _ in range(40)]
    reader.send_signal(signal.SIGINT)
    rest, said = reader.communicate(timeout=deadline_s())
    assert (reader.returncode, rest, said) == (130, b"", b"")
    assert sorted(found) == sorted([*range(4), *list(range(40)) * 3])


def test_following_over_a_restart_of_the_broker(tmp_path: Path, topic: str) -> None:
    """A member of a group waits for the broker, and reads each record once."""
    (port,) = free_ports(1)
    settings = {**BROKER_SETTINGS, "listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    running = BrokerProcess(tmp_path, settings, ephemeral=False).start()
    fill(running, topic, 2, 10)
    with started(running.bootstrap, "consume", topic, "--group", topic, "--follow") as reader:
        assert reader.stdout is not None
        found = [int(reader.stdout.readline()) for _ in range(10)]
        running.stop()
        running = BrokerProcess(tmp_path, settings, ephemeral=False).start()
        fill(running, topic, 2, 10)
        lines = [reader.stdout.readline() for _ in range(10)]
        assert all(lines), reader.communicate()[1].decode()
        later = [int(line) for line in lines]
        reader.send_signal(signal.SIGINT)
        assert reader.wait(deadline_s()) == 130
        assert reader.stdout.read() == b""
    assert sorted(found) == sorted(later) == list(range(10))
    assert consumed(running.bootstrap, topic, "--group", topic) == b""
    running.stop()


def test_a_pipe_that_is_closed_ends_it(broker: BrokerProcess, topic: str) -> None:
    fill(broker, topic, 1, 20_000)
    with started(broker.bootstrap, "consume", topic, "--group", topic, "--follow") as reader:
        assert reader.stdout is not None
        assert reader.stderr is not None
        assert reader.stdout.readline() == b"0\n"
        reader.stdout.close()
        assert reader.wait(deadline_s()) == 1
        assert reader.stderr.read() == b""


def test_what_a_group_has_read_is_not_read_again(broker: BrokerProcess, topic: str) -> None:
    fill(broker, topic, 2, 20)
    group = ("-G", f"{topic}-group")
    first = values(consumed(broker.bootstrap, topic, *group, "-c", "7"))
    second = values(consumed(broker.bootstrap, topic, *group))
    assert len(first) == 7
    assert sorted(first + second) == list(range(20))
    assert consumed(broker.bootstrap, topic, *group) == b""
    # kcat continues in the same group.
    fill(broker, topic, 2, 4)
    assert sorted(values(kcat(broker.bootstrap, *group, "-e", topic).out)) == [0, 1, 2, 3]


def test_members_share_and_one_that_is_told_to_end_leaves(broker: BrokerProcess, topic: str, tmp_path: Path) -> None:
    """Two of ours and one of kcat's: each record once, whichever ends."""
    fill(broker, topic, 6, 12)
    files = [tmp_path / f"member-{number}" for number in range(3)]
    ours = []
    for path in files[:2]:
        with path.open("wb") as out:
            ours.append(started(broker.bootstrap, "consume", topic, "--group", topic, "--follow", out=out.fileno()))
    with files[2].open("wb") as out:
        line = ["kcat", "-q", "-u", "-b", broker.bootstrap, "-G", topic, "-X", "partition.assignment.strategy=range"]
        other = subprocess.Popen([*line, "-o", "beginning", topic], stdout=out)

    def shares() -> bool:
        done = broker.command("group", "describe", topic, "--json")
        if done.returncode:
            return False
        group = json.loads(done.stdout)
        return group["state"] == "Stable" and [len(each["assignment"]) for each in group["members"]] == [2, 2, 2]

    def read() -> list[int]:
        return sorted(number for path in files for number in values(path.read_bytes()))

    wait_until(shares, "each has two partitions")
    wait_until(lambda: set(read()) == set(range(12)), "all are read")
    # Records read before a member joined may be read again, as they were not committed.
    fill(broker, topic, 6, 60, first=100)
    wait_until(lambda: set(read()) >= set(range(100, 160)), "the later ones are read")
    assert [number for number in read() if number >= 100] == list(range(100, 160))
    ours[0].send_signal(signal.SIGTERM)
    assert ours[0].wait(deadline_s()) == 143
    other.terminate()
    other.wait(deadline_s())
    fill(broker, topic, 6, 6, first=200)
    wait_until(lambda: set(read()) >= set(range(200, 206)), "the last one reads them all")
    assert [number for number in read() if number >= 200] == list(range(200, 206))
    ours[1].send_signal(signal.SIGINT)
    assert ours[1].wait(deadline_s()) == 130
    for each in ours:
        each.communicate()
    assert consumed(broker.bootstrap, topic, "--group", topic) == b""


def test_offsets_that_are_gone_are_said(broker: BrokerProcess, topic: str) -> None:
    fill(broker, topic, 1, 10)
    assert len(consumed(broker.bootstrap, topic, "--group", topic, "-c", "2")) == 4
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.delete_records([ConfluentPartition(topic, 0, 6)]).values():
        future.result(deadline_s())
    done = rotunda(broker.bootstrap, "consume", topic, "--group", topic)
    assert (done.code, values(done.out)) == (0, [6, 7, 8, 9])
    assert f"{topic}-0 has no offset 2, only 6 to below 10; continuing at 6" in done.err
    assert values(consumed(broker.bootstrap, topic, "--from", "0")) == [6, 7, 8, 9]


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        ((), 2, "missing topic"),
        (("{topic}s",), 1, "unknown topic {topic}s; did you mean {topic}?"),
        (("^none-{topic}",), 1, "no topic matches ^none-{topic}"),
        (("{topic}", "-p", "3"), 1, "topic {topic} has no partition 3: it has 0 to 0"),
        (("{topic}", "-o", "soon"), 2, "invalid start 'soon': expected beginning, end"),
        (("{topic}", "--until", "3"), 2, "invalid time '3': expected a duration"),
        (("{topic}", "-o", "stored"), 2, "--from stored needs --group"),
        (("{topic}", "-f", "%x"), 2, "%x in the format '%x' is none of"),
        (("{topic}", "--group", "g", "-p", "0"), 2, "--group and --partition exclude each other"),
        (("{topic}", "-X", "fetch.min.bytes=1"), 2, "-X fetch.min.bytes has no effect"),
        (("^(", "-q"), 2, "invalid regular expression ^("),
    ],
)
def test_what_cannot_be_read_is_said(
    broker: BrokerProcess, topic: str, arguments: tuple[str, ...], code: int, complaint: str
) -> None:
    fill(broker, topic, count=1)
    done = rotunda(broker.bootstrap, "consume", *(each.format(topic=topic) for each in arguments))
    assert (done.code, done.out) == (code, b"")
    assert complaint.format(topic=topic) in done.err


def test_a_broker_that_cannot_be_reached() -> None:
    done = rotunda("127.0.0.1:1", "consume", "t")
    assert done.code == 1
    assert "cannot connect to 127.0.0.1:1" in done.err
    done = rotunda("127.0.0.1:1", "produce", "t", data=b"x\n")
    assert done.code == 1
    assert "cannot connect to 127.0.0.1:1" in done.err
