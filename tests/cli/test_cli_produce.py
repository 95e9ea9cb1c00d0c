"""`rotunda produce` against a whole broker: like kcat, piped from `rotunda consume`, in transactions, and rejected."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rotunda.broker.records.record_batch import CODECS, batch_headers
from tests.cli.record_commands import (
    WHOLE,
    Done,
    command,
    consumed,
    ended,
    kcat,
    produce,
    read_by_kcat,
    rotunda,
    started,
)
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s, wait_until

BROKER_SETTINGS = {"transaction.state.log.num.partitions": 2, "message.max.bytes": 2_000_000}
BROKER_OPTIONS = {"ephemeral": False}


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (b"a\nb\n", ()),
        (b"a\r\nlast has no line break", ()),
        (b"k:v\n:v\nk:\n:\nx\nk:v:w\n", ("-K", ":")),
        (b"k:v\n:v\nk:\n:\nx\n", ("-K", ":", "-Z")),
        (b"k::v\nx\n", ("-K", "::", "-k", "fixed")),
        (b"a;b;c\n", ("-D", ";")),
        (b"a::b::c", ("-D", "::")),
        (b"a\1b\2c\2", ("-K", r"\x01", "-D", r"\x02")),
        (b"a\xff\0b\n", ("-k", "\u00fc")),
        (b"a\nb\n", ("-H", "a=b", "-H", "n", "-H", "e=", "-H", "a=c=d")),
        (b"a\nb\nc\n", ("-c", "2")),
        (b"a\nb\n", ("-p", "1")),
        (b"", ()),
    ],
)
def test_the_same_input_becomes_the_same_records(
    broker: BrokerProcess, topic: str, data: bytes, options: tuple[str, ...]
) -> None:
    """As kcat writes them, and `rotunda consume` reads the same as kcat."""
    for name in ("kcat", "rotunda"):
        assert broker.command("topic", "create", f"{topic}-{name}", "--partitions", "2").returncode == 0
    assert kcat(broker.bootstrap, "-P", "-t", f"{topic}-kcat", *options, data=data).code == 0
    produce(broker.bootstrap, f"{topic}-rotunda", data, *options)
    shape = ("-f", WHOLE.replace("%p|", "") if "-p" not in options else WHOLE)
    found = read_by_kcat(broker.bootstrap, f"{topic}-rotunda", *shape)
    others = read_by_kcat(broker.bootstrap, f"{topic}-kcat", *shape)
    assert sorted(found.split(b"|")) == sorted(others.split(b"|"))
    assert sorted(consumed(broker.bootstrap, f"{topic}-rotunda", *shape)) == sorted(found)


@pytest.mark.parametrize("codec", CODECS)
def test_each_codec_is_what_stands_in_the_log(broker: BrokerProcess, topic: str, codec: str) -> None:
    lines = b"".join(b"%d\n" % number for number in range(2000))
    produce(broker.bootstrap, topic, lines, "-z", codec)
    assert read_by_kcat(broker.bootstrap, topic) == consumed(broker.bootstrap, topic) == lines
    (segment,) = (broker.data_dir / f"{topic}-0").glob("*.log")
    assert {CODECS[header.codec] for _, header in batch_headers(segment.read_bytes())} == {codec}


def test_json_from_topic_to_topic(broker: BrokerProcess, topic: str) -> None:
    """Bytes of any kind, null, headers, timestamps and partitions: produce accepts the output of consume."""
    seed = random.randrange(1 << 30)
    rng = random.Random(seed)
    for name in ("from", "to"):
        assert broker.command("topic", "create", f"{topic}-{name}", "--partitions", "3").returncode == 0
    data = b"".join(
        b"%b=%b|" % (rng.randbytes(rng.randrange(4)).replace(b"|", b"/"), rng.randbytes(9).replace(b"|", b"/"))
        for _ in range(500)
    )
    produce(broker.bootstrap, f"{topic}-from", data, "-K", "=", "-D", "|", "-Z", "-H", "h=1", "-H", "n")
    lines = consumed(broker.bootstrap, f"{topic}-from", "--json")
    produce(broker.bootstrap, f"{topic}-to", lines, "--json", "-p", "same")
    again = consumed(broker.bootstrap, f"{topic}-to", "--json")
    expected = lines.replace(f'"{topic}-from"'.encode(), f'"{topic}-to"'.encode())
    assert sorted(again.splitlines()) == sorted(expected.splitlines()), seed
    assert len(again.splitlines()) == data.count(b"|")


def test_tombstones_and_texts_that_stand_for_null(broker: BrokerProcess, topic: str) -> None:
    produce(broker.bootstrap, topic, b"a:NULL\nNULL:b\nc:\n", "-K", ":", "--null", "NULL")
    shown = consumed(broker.bootstrap, topic, "-f", "%k|%K|%s|%S;")
    assert shown == b"a|1||-1;|-1|b|1;c|1||0;"
    assert consumed(broker.bootstrap, topic, "-K", ":", "-Z") == b"a:NULL\nNULL:b\nc:NULL\n"


def test_files_by_line_and_whole(broker: BrokerProcess, topic: str, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"a\nb\n")
    two.write_bytes(b"c\nd")
    produce(broker.bootstrap, topic, b"not read", "--file", str(one), "-l", str(two))
    produce(broker.bootstrap, topic, b"", "--whole-file", str(one), "--whole-file", str(two))
    assert consumed(broker.bootstrap, topic, "-f", "%s|") == b"a|b|c|d|a\nb\n|c\nd|"
    missing = rotunda(broker.bootstrap, "produce", topic, "--file", str(tmp_path / "three"))
    assert (missing.code, missing.out) == (1, b"")
    assert f"cannot read {tmp_path / 'three'}: No such file" in missing.err


def test_acks_properties_and_tee(broker: BrokerProcess, topic: str) -> None:
    for acks in ("0", "1", "all"):
        produce(broker.bootstrap, topic, b"x\n", "--acks", acks, "-X", "linger.ms=1")
    done = rotunda(broker.bootstrap, "produce", topic, "--tee", data=b"a\nb\n")
    assert done == Done(0, b"a\nb\n", "")
    assert wait_until(lambda: len(consumed(broker.bootstrap, topic)) == 10, "all are there")


def test_a_line_is_written_while_the_pipe_stays_open(broker: BrokerProcess, topic: str) -> None:
    assert broker.command("topic", "create", topic).returncode == 0
    with started(broker.bootstrap, "produce", topic) as writer:
        assert writer.stdin is not None
        writer.stdin.write(b"first\n")
        writer.stdin.flush()
        wait_until(lambda: consumed(broker.bootstrap, topic) == b"first\n", "the line is there")
        writer.send_signal(signal.SIGINT)
        assert writer.wait(deadline_s()) == 130


def test_a_pause_in_a_pipe_that_does_not_block_is_not_its_end(broker: BrokerProcess, topic: str) -> None:
    """Another user of standard input may have left it so."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    line = command(broker.bootstrap, "produce", topic)
    with subprocess.Popen(line, stdin=reading, stderr=subprocess.PIPE) as writer:
        os.close(reading)
        os.write(writing, b"first\n")
        wait_until(lambda: rotunda(broker.bootstrap, "consume", topic).out == b"first\n", "the line is there")
        os.write(writing, b"second\n")
        os.close(writing)
        assert writer.communicate(timeout=deadline_s())[1] == b""
    assert writer.returncode == 0
    assert consumed(broker.bootstrap, topic) == b"first\nsecond\n"


def test_a_transaction_is_committed_at_the_end_of_the_input(broker: BrokerProcess, topic: str) -> None:
    produce(broker.bootstrap, topic, b"a\nb\n", "--transactional-id", topic)
    assert consumed(broker.bootstrap, topic) == b"a\nb\n"
    wrong = rotunda(broker.bootstrap, "produce", topic, "--transactional-id", topic, "--json", data=b'{"value":"c"}\n{')
    assert wrong.code == 1
    assert "standard input, line 2: invalid JSON" in wrong.err
    assert "nothing has been written, as the transaction is aborted" in wrong.err
    assert consumed(broker.bootstrap, topic) == b"a\nb\n"


def test_an_interrupted_transaction_is_aborted(broker: BrokerProcess, topic: str) -> None:
    assert broker.command("topic", "create", topic).returncode == 0
    with started(broker.bootstrap, "produce", topic, "--transactional-id", topic) as writer:
        assert writer.stdin is not None
        writer.stdin.write(b"lost\n")
        writer.stdin.flush()
        uncommitted = ("--isolation-level", "read_uncommitted")
        wait_until(lambda: consumed(broker.bootstrap, topic, *uncommitted) == b"lost\n", "the line is there")
        writer.send_signal(signal.SIGINT)
        assert writer.wait(deadline_s()) == 130
    produce(broker.bootstrap, topic, b"kept\n")
    # Were it still open, nothing after it could be read.
    assert consumed(broker.bootstrap, topic) == b"kept\n"


def test_a_record_that_is_rejected_is_named(broker: BrokerProcess, topic: str) -> None:
    data = b"first\n" + b"x" * 1_500_000 + b"\nthird\n"
    done = rotunda(broker.bootstrap, "produce", topic, data=data)
    assert (done.code, done.out) == (1, b"")
    assert "standard input, line 2 was not written: MESSAGE_TOO_LARGE" in done.err
    assert "1 record had been written" in done.err
    assert consumed(broker.bootstrap, topic) == b"first\n"


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        ((), 2, "missing topic"),
        (("a", "-t", "b"), 2, "two topics: a and b"),
        (("{topic}", "-p", "7"), 1, "topic {topic} has no partition 7: it has 0 to 0"),
        (("{topic}", "-p", "same"), 2, "-p same needs --json"),
        (("{topic}", "--json", "-K", ":"), 2, "--json excludes -K"),
        (("{topic}", "-D", ""), 2, "invalid -D or -K: empty"),
        (("{topic}", "-X", "linger.sm=1"), 2, "unknown setting linger.sm (did you mean linger.ms?)"),
        (("{topic}", "-X", "linger.ms"), 2, "--property"),
        (("{topic}", "--acks", "0", "--transactional-id", "t"), 2, "acks=all"),
        (("a b",), 1, "line 1 was not written: INVALID_TOPIC_EXCEPTION"),
    ],
)
def test_what_cannot_be_written_is_said(
    broker: BrokerProcess, topic: str, arguments: tuple[str, ...], code: int, complaint: str
) -> None:
    assert broker.command("topic", "create", topic).returncode == 0
    done = rotunda(broker.bootstrap, "produce", *(each.format(topic=topic) for each in arguments), data=b"x\n")
    assert complaint.format(topic=topic) in done.err
    assert (done.code, done.out) == (code, b"")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"[" * 100_000, "line 2: invalid JSON: maximum recursion depth"),
        (b'\xff\xfe{"value": 1}', "line 2: invalid JSON: 'utf-8' codec"),
        (b'{"value": "v", "topic": "\\ud800"}', "line 2: invalid record: the topic"),
        (b'{"value": "v", "topic": ""}', "INVALID_TOPIC_EXCEPTION"),
        (b'{"value": "\\ud800"}', "line 2: 'utf-8' codec"),
        (b'{"value": "v", "headers": {"\\ud800": "v"}}', "line 2: invalid record: the headers"),
        (b'{"value": "v", "timestamp": -5}', "line 2: invalid record: timestamp_ms is -5"),
        (b'{"value": "v", "timestamp": 1' + b"0" * 30 + b"}", "line 2: invalid record: timestamp_ms is 1000"),
        (b'{"value": "v", "partition": -1}', "line 2: invalid record: partition -1"),
        (b'{"value": "v", "partition": 99999999999}', "line 2: invalid record: partition is 99999999999"),
    ],
)
def test_a_json_line_that_no_record_can_be_made_of_is_named(
    broker: BrokerProcess, topic: str, line: bytes, complaint: str
) -> None:
    first = b'{"value": "first", "partition": 0, "topic": "%b"}\n' % topic.encode()
    done = rotunda(broker.bootstrap, "produce", "--json", "-p", "same", data=first + _with_a_place(line, topic))
    assert (done.code, done.out) == (1, b"")
    assert complaint in done.err
    assert "1 record had been written" in done.err
    assert "Traceback" not in done.err
    assert consumed(broker.bootstrap, topic) == b"first\n"


def _with_a_place(line: bytes, topic: str) -> bytes:
    """Return a line that names topic and partition, unless it does so or is no object."""
    if not line.startswith(b"{"):
        return line
    for name, text in ((b"topic", b'"%b"' % topic.encode()), (b"partition", b"0")):
        if b'"%b"' % name not in line:
            line = b'{"%b": %b, %b' % (name, text, line[1:])
    return line


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("produce -b {b} {topic} <&-", "standard input is closed"),
        ("produce -b {b} {topic} --tee </dev/zero >&-", "standard output is closed"),
        (
            "produce -b {b} {topic} --tee -D '\\0' -c 9 </dev/zero >/dev/full",
            "cannot write to standard output: No space",
        ),
        ("consume -b {b} {topic} >&-", "standard output is closed"),
        ("consume -b {b} {topic} >/dev/full", "cannot write to standard output: No space"),
        ("topic list --bootstrap {b} >/dev/full", "cannot write to standard output: No space"),
        ("--help >/dev/full", "cannot write to standard output: No space"),
    ],
)
def test_streams_that_are_closed_or_full_are_said(
    broker: BrokerProcess, topic: str, words: str, complaint: str
) -> None:
    produce(broker.bootstrap, topic, b"first\n")
    line = f"{sys.executable} -m rotunda {words.format(b=broker.bootstrap, topic=topic)}"
    done = ended(["bash", "-c", line], b"")
    assert done.code == 1
    assert done.err.startswith(f"rotunda: {complaint}")
    assert "Traceback" not in done.err
