"""kcat as Debian ships it (librdkafka 2.0) against a real broker."""

import json
import subprocess
import time

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s


def kcat(broker: BrokerProcess, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    command = ["kcat", "-b", broker.bootstrap, *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=deadline_s(60), check=False)


def checked(broker: BrokerProcess, *arguments: str, text: str = "") -> str:
    done = kcat(broker, *arguments, text=text)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produce_and_consume(broker, topic, codec) -> None:
    lines = [f"key-{number}:value-{number}" for number in range(500)]
    produce = ["-P", "-t", topic, "-p", "0", "-K:", "-z", codec, "-H", "colour=blue"]
    checked(broker, *produce, text="\n".join(lines) + "\n")
    out = checked(broker, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-f", "%o %k:%s %h\\n")
    assert out.splitlines() == [f"{offset} {line} colour=blue" for offset, line in enumerate(lines)]


def test_acks_none_and_all(broker, topic) -> None:
    for acks in ("0", "1", "all"):
        checked(broker, "-P", "-t", topic, "-p", "0", "-X", f"acks={acks}", text=f"acks {acks}\n")
    out = checked(broker, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-c", "3")
    # No test waits for the first, so that another connection's record may precede it.
    assert sorted(out.splitlines()) == ["acks 0", "acks 1", "acks all"]


def test_consume_from_an_offset_and_from_the_end(broker, topic) -> None:
    checked(broker, "-P", "-t", topic, "-p", "0", text="".join(f"{n}\n" for n in range(10)))
    assert checked(broker, "-C", "-t", topic, "-p", "0", "-o", "7", "-e").split() == ["7", "8", "9"]
    assert checked(broker, "-C", "-t", topic, "-p", "0", "-o", "-2", "-e").split() == ["8", "9"]


def test_query_and_consume_by_timestamp(broker, topic) -> None:
    checked(broker, "-P", "-t", topic, "-p", "0", text="before\n")
    later_ms = time.time_ns() // 1_000_000 + 1
    while time.time_ns() // 1_000_000 < later_ms:
        pass
    checked(broker, "-P", "-t", topic, "-p", "0", text="after\n")
    assert checked(broker, "-Q", "-t", f"{topic}:0:{later_ms}").strip().endswith("offset 1")
    out = checked(broker, "-C", "-t", topic, "-p", "0", "-o", f"s@{later_ms}", "-e")
    assert out.split() == ["after"]


def test_metadata_as_json(broker, topic) -> None:
    checked(broker, "-P", "-t", topic, text="x\n")
    listed = json.loads(checked(broker, "-L", "-J", "-t", topic))
    assert [node["name"] for node in listed["brokers"]] == [broker.bootstrap]
    assert listed["topics"][0]["topic"] == topic
    assert listed["topics"][0]["partitions"][0]["leader"] == 1


def test_idempotent_producer(broker, topic) -> None:
    text = "".join(f"{n}\n" for n in range(1000))
    checked(broker, "-P", "-t", topic, "-p", "0", "-X", "enable.idempotence=true", text=text)
    assert checked(broker, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e") == text


def test_a_bad_topic_name_ends_with_an_error(broker) -> None:
    done = kcat(broker, "-P", "-t", "no/slash", "-X", "message.timeout.ms=20000", text="x\n")
    assert done.returncode != 0
    assert "nvalid topic" in done.stderr
