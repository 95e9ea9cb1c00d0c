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
