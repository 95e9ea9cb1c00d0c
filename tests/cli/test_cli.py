"""The command line of a whole broker: its output and its exit codes."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rotunda.broker.runtime import run_dir
from rotunda.shm.segment import new_instance
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import command, process
from tests.support.deadline import wait_until


@pytest.fixture
def run_path(tmp_path: Path) -> Iterator[str]:
    """Yield a run directory; a daemon that still runs there afterwards is killed."""
    path = tmp_path / "run"
    yield str(path)
    record = run_dir.read(path)
    if record is not None and record.is_alive:
        os.kill(record.pid, signal.SIGKILL)


def start(run_path: str, *arguments: str) -> dict[str, object]:
    done = command(
        "start", "--daemon", "--wait", "--json", "--listen", "127.0.0.1:0", "--run-dir", run_path, *arguments
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_time_until_ready_leaves_out_what_the_process_did_before(run_path: str) -> None:
    """As the set-up of `ops/start`, which replaces itself by the broker."""
    script = f"{sys.executable} -c pass && echo set up && read line && exec {sys.executable} -m rotunda start --json"
    line = ["sh", "-c", f"{script} --ephemeral --listen 127.0.0.1:0 --set status.port=0 --run-dir {run_path}"]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "set up\n"
        began = time.monotonic()
        process.stdin.write("\n")
        process.stdin.flush()
        ready = json.loads(process.stdout.readline())
        elapsed_ms = (time.monotonic() - began) * 1000
        process.terminate()
    assert 0 < ready["ready_ms"] <= elapsed_ms


def test_a_daemon_from_start_to_stop(run_path: str, tmp_path: Path) -> None:
    ready = start(run_path, "--data-dir", str(tmp_path / "data"))
    assert ready["data_dir"] == str(tmp_path / "data")
    assert ready["run_dir"] == run_path
    assert isinstance(ready["ready_ms"], int)

    def status_of_all() -> dict[str, Any] | None:
        done = command("status", "--json", "--run-dir", run_path)
        assert done.returncode == 0
        found = json.loads(done.stdout)
        assert (found["pid"], found["bootstrap"], found["state"]) == (ready["pid"], ready["bootstrap"], "ready")
        return found if {process["state"] for process in found["processes"]} == {"running"} else None

    # Some start only after the broker is ready.
    status = wait_until(status_of_all, "every process runs")
    assert {"role", "index", "pid", "state", "restarts"} <= status["processes"][0].keys()
    assert "bootstrap=" in command("status", "--run-dir", run_path).stdout
    assert command("stop", "--run-dir", run_path).returncode == 0
    assert command("status", "--run-dir", run_path).returncode == 3
    assert command("stop", "--run-dir", run_path).returncode == 3
    log = (Path(run_path) / "broker.log").read_text()
    # The length of a turn depends on the machine.
    assert not [line for line in log.splitlines() if "handler" in line and "a turn took" not in line]


def test_a_start_creates_the_missing_topics_and_users(run_path: str, tmp_path: Path) -> None:
    contents = tmp_path / "contents"
    contents.write_text("# for tests\ntopic payments:2 cleanup.policy=compact\nuser alice 'a secret'\n")
    options = ("--data-dir", str(tmp_path / "data"), "--topic", "orders:3", "--topic", "one")
    start(run_path, *options, "--create", str(contents))
    listed = json.loads(command("topic", "list", "--json", "--run-dir", run_path).stdout)
    assert {each["name"]: each["partitions"] for each in listed} == {"one": 1, "orders": 3, "payments": 2}
    described = json.loads(command("topic", "describe", "payments", "--json", "--run-dir", run_path).stdout)
    assert described["configs"] == {"cleanup.policy": "compact"}
    [user] = json.loads(command("user", "list", "--json", "--run-dir", run_path).stdout)
    assert user["user"] == "alice"
    apples = tmp_path / "apples"
    apples.write_text("three apples\n")
    assert command("produce", "orders", "-l", str(apples), "--run-dir", run_path).returncode == 0
    assert command("stop", "--run-dir", run_path).returncode == 0

    contents.write_text("topic payments:7\n")
    start(run_path, *options, "--create", str(contents))
    assert command("consume", "orders", "--run-dir", run_path).stdout == "three apples\n"
    described = json.loads(command("topic", "describe", "payments", "--json", "--run-dir", run_path).stdout)
    assert len(described["partitions"]) == 2
    assert command("stop", "--run-dir", run_path).returncode == 0

    done = command("start", "--run-dir", run_path, *options, "--topic", "two words")
    assert (done.returncode, done.stdout) == (2, "")
    assert "topic two words: Topic name is invalid" in done.stderr


def test_an_ephemeral_broker_removes_its_directory(run_path: str) -> None:
    ready = start(run_path, "--ephemeral")
    directory = Path(str(ready["data_dir"])).parent
    assert directory.is_dir()
    assert command("stop", "--quick", "--run-dir", run_path).returncode == 0
    assert not directory.exists()


def test_a_killed_ephemeral_brokers_directory_goes_at_the_next_start(run_path: str) -> None:
    ready = start(run_path, "--ephemeral")
    directory = Path(str(ready["data_dir"])).parent
    os.kill(int(str(ready["pid"])), signal.SIGKILL)
    wait_until(lambda: command("status", "--run-dir", run_path).returncode == 3, "it is gone")
    assert directory.is_dir()
    start(run_path, "--ephemeral")
    assert not directory.exists()
    assert command("stop", "--run-dir", run_path).returncode == 0


@pytest.mark.parametrize("arguments", [(), ("help",), ("--help",)])
def test_help_lists_every_command_once(arguments: tuple[str, ...]) -> None:
    done = command(*arguments)
    assert done.returncode == 0
    for name in ("start", "topic", "completion", "mirror-config"):
        assert len(re.findall(rf"^  {name} ", done.stdout, re.MULTILINE)) == 1


@pytest.mark.parametrize(
    "words",
    [
        "topic list", "config list", "group list", "user list", "quota list", "acl list", "requests --json", "doctor",
        "consume none", "mirror-config --to kafka:1", "print-config --json", "print-alerts",
    ],
)  # fmt: skip
def test_command_in_a_process(broker: BrokerProcess, words: str) -> None:
    """Other tests call main() in their own process, which has imported more."""
    uses_broker = not words.startswith("print-alerts")
    arguments = (*words.split(), *(("--run-dir", str(broker.run_dir)) if uses_broker else ()))
    own, here = process(*arguments), command(*arguments)
    assert (own.returncode, own.stdout) == (here.returncode, here.stdout)
    # A search begins at a second.
    assert re.sub(r"T[\d:]+", "", own.stderr) == re.sub(r"T[\d:]+", "", here.stderr)


def test_help_of_a_command() -> None:
    assert command("help", "topic", "list").stdout == command("topic", "list", "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("topc",), "unknown command topc (did you mean topic?); see rotunda --help"),
        (("topic", "lsit"), "unknown action lsit (did you mean list?); see rotunda topic --help"),
        (("zzz",), "unknown command zzz; see rotunda --help"),
        (("diagnose",), "unknown command diagnose (did you mean rotunda report diagnose?); see rotunda --help"),
        (
            ("acl", "add", "--principal", "User:a"),
            "unrecognized arguments: --principal User:a (did you mean --deny-principal or --allow-principal?); see "
            "rotunda acl add --help",
        ),
        (("status", "--josn"), "unrecognized arguments: --josn (did you mean --json?); see rotunda status --help"),
    ],
)
def test_a_misspelt_command(arguments: tuple[str, ...], error: str) -> None:
    done = command(*arguments)
    assert (done.returncode, done.stderr.splitlines()[-1].partition("error: ")[2]) == (2, error)


def test_a_shell_completes_commands_and_options(tmp_path: Path) -> None:
    assert "rotunda" in command("completion", "bash").stdout
    found = tmp_path / "completions"
    line = "rotunda topic create --part"
    process(
        _ARGCOMPLETE="1", COMP_LINE=line, COMP_POINT=str(len(line)), _ARGCOMPLETE_STDOUT_FILENAME=str(found),
    )  # fmt: skip
    assert found.read_text().strip() == "--partitions"


def test_reports_are_listed() -> None:
    lines = command("report").stdout.splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["REPORT", "rollup"]


def test_topics_from_the_command_line(run_path: str, tmp_path: Path) -> None:
    start(run_path, "--ephemeral")
    where = ("--run-dir", run_path)
    made = command("topic", "create", "orders", "--partitions", "3", "--config", "retention.ms=60000", *where)
    assert (made.returncode, made.stdout) == (0, "created topic orders\n"), made.stderr
    again = command("topic", "create", "orders", *where)
    assert again.returncode == 1
    assert again.stderr.startswith("rotunda: TOPIC_ALREADY_EXISTS: ")
    fruit = tmp_path / "fruit"
    fruit.write_text("apple\npear\n")
    assert command("produce", "orders", "--file", str(fruit), *where).returncode == 0
    [listed] = json.loads(command("topic", "list", "--json", *where).stdout)
    size_bytes = listed.pop("size_bytes")
    assert (listed, size_bytes > 0) == ({"name": "orders", "partitions": 3, "records": 2}, True)
    assert command("topic", "list", *where).stdout.splitlines() == [
        "TOPIC   PARTITIONS  RECORDS  SIZE",
        f"orders           3        2  {size_bytes} B",
    ]
    described = json.loads(command("topic", "describe", "orders", "--json", *where).stdout)
    assert described["configs"] == {"retention.ms": "60000"}
    assert [partition["partition"] for partition in described["partitions"]] == [0, 1, 2]
    assert sum(partition["log_end_offset"] for partition in described["partitions"]) == 2
    assert "partition 2 leader=" in command("topic", "describe", "orders", *where).stdout
    assert command("topic", "delete", "orders", *where).stdout == "deleted topic orders\n"
    assert command("topic", "list", *where).stdout == ""
    missing = command("topic", "describe", "orders", *where)
    assert missing.returncode == 1
    assert "UNKNOWN_TOPIC_OR_PARTITION" in missing.stderr
    assert command("stop", *where).returncode == 0


def test_a_topic_is_altered(broker: BrokerProcess, topic: str) -> None:
    where = ("--run-dir", str(broker.run_dir))
    assert command("topic", "create", topic, "--partitions", "2", "--config", "retention.ms=1", *where).returncode == 0
    changes = ("--partitions", "3", "--config", "retention.ms=2", "--config", "segment.bytes=1048576")
    done = command("topic", "alter", topic, *changes, *where)
    assert done.stdout.splitlines() == [
        f"altered topic {topic}",
        "  partitions: 2 -> 3",
        "  retention.ms: 1 -> 2",
        "  segment.bytes: (the broker's) -> 1048576",
    ], done.stderr
    changes = ("--delete-config", "retention.ms", "--delete-config", "cleanup.policy", "--json")
    assert json.loads(command("topic", "alter", topic, *changes, *where).stdout) == {
        "topic": topic,
        "changes": [
            {"name": "retention.ms", "before": "2", "after": None},
            {"name": "cleanup.policy", "before": None, "after": None},
        ],
    }
    for refused, name in (
        ((topic, "--partitions", "2", "--config", "retention.ms=9"), "INVALID_PARTITIONS"),
        ((topic, "--partitions", "9", "--config", "retention.mss=9"), "INVALID_CONFIG"),
        (("nobody", "--partitions", "9"), "UNKNOWN_TOPIC_OR_PARTITION"),
    ):
        done = command("topic", "alter", *refused, *where)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"rotunda: {name}: ")
    described = json.loads(command("topic", "describe", topic, "--json", *where).stdout)
    assert described["configs"] == {"segment.bytes": "1048576"}, "a refused part leaves the other undone"
    assert len(described["partitions"]) == 3


def test_failures_of_a_daemon_reach_the_one_who_waits(run_path: str, tmp_path: Path) -> None:
    start(run_path, "--data-dir", str(tmp_path / "data"))
    port = json.loads(command("status", "--json", "--run-dir", run_path).stdout)["bootstrap"]
    other = str(tmp_path / "other")
    cases = [
        (run_path, str(tmp_path / "more"), "127.0.0.1:0", "--run-dir"),
        (other, str(tmp_path / "data"), "127.0.0.1:0", "in use"),
        (other, str(tmp_path / "more"), port, "port is in use"),
    ]
    for run, data, listen, text in cases:
        done = command("start", "--daemon", "--wait", "--run-dir", run, "--data-dir", data, "--listen", listen)
        assert done.returncode == 4, done.stdout + done.stderr
        assert text in done.stderr
    assert command("stop", "--run-dir", run_path).returncode == 0


def test_data_of_a_newer_version_is_exit_code_5(run_path: str, tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=99\ncluster.id=x\nnode.id=1\n")
    done = command("start", "--run-dir", run_path, "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0")
    assert done.returncode == 5, done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ("start", "--set", "num.netwrok.threads=1"),
        ("start", "--set", "nonsense"),
        ("start", "--wait"),
        ("start", "--topic", "orders:three"),
        ("start", "--create", "no/such/file"),
        ("start", "--ephemeral", "--data-dir", "here"),
        ("start", "--listen", "0.0.0.0:0"),
        ("start", "--listen", "127.0.0.1"),
        ("start", "--listen", "127.0.0.1:70000"),
        ("start", "--daemon", "--wait", "-5"),
        ("status", "--wait", "soon"),
        ("topic", "list", "--bootstrap", "localhost"),
        ("check-config", "--set", "num.io.threads=none"),
        ("check-config", "--config", "no/such/file"),
        ("topic", "create", "t", "--config", "nonsense", "--bootstrap", "127.0.0.1:1"),
        ("topic", "alter", "t", "--bootstrap", "127.0.0.1:1"),
        ("topic", "alter", "t", "--config", "a=1", "--delete-config", "a", "--bootstrap", "127.0.0.1:1"),
        ("group", "list", "--bootstrap", "localhost"),
        ("group", "reset-offsets", "g", "--all-topics", "--to-offset", "-1", "--bootstrap", "127.0.0.1:1"),
        ("dance",),
    ],
)
def test_bad_usage_and_bad_configuration_are_exit_code_2(run_path: str, arguments: tuple[str, ...]) -> None:
    done = command(*arguments, ROTUNDA_RUN_DIR=run_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr
    assert done.stdout == ""
    assert not Path(run_path).exists()


def test_commands_say_by_exit_code_that_no_broker_runs(run_path: str) -> None:
    assert command("status", "--run-dir", run_path).returncode == 3
    assert json.loads(command("status", "--json", "--run-dir", run_path).stdout)["state"] == "not running"
    assert command("stop", "--run-dir", run_path).returncode == 3
    assert command("topic", "list", "--run-dir", run_path).returncode == 3
    assert command("topic", "list", "--bootstrap", "127.0.0.1:1").returncode == 1
    assert command("group", "list", "--run-dir", run_path).returncode == 3
    assert command("group", "reset-offsets", "g", "--all-topics", "--to-latest", "--run-dir", run_path).returncode == 3


def test_a_recycled_pid_is_not_the_broker(tmp_path: Path) -> None:
    pid, _, ticks = new_instance().partition(".")
    record = run_dir.RunRecord(
        instance="x",
        pid=int(pid),
        start_ticks=int(ticks) - 1,
        state=run_dir.READY,
        bootstrap="127.0.0.1:1",
        data_dir="/",
        run_dir=str(tmp_path),
        processors=1,
        most_processors=8,
        most_handlers=4,
        handlers=1,
        max_partitions=1,
        started_ms=0,
    )
    run_dir.write(tmp_path, record)
    assert command("stop", "--run-dir", str(tmp_path)).returncode == 3
    assert command("status", "--run-dir", str(tmp_path)).returncode == 3


def test_a_configuration_is_checked_and_printed_with_its_origins(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.io.threads=3\n")
    arguments = ("--config", str(file), "--set", "num.partitions=7", "--data-dir", str(tmp_path))
    assert command("check-config", *arguments).stdout == "the configuration is valid\n"
    printed = command("print-config", *arguments, ROTUNDA_MESSAGE_MAX_BYTES="1234").stdout.splitlines()
    assert f"num.io.threads=3  # {file}:1" in printed
    assert any(line.startswith("num.partitions=7  # flag") for line in printed)
    assert any(line.startswith("message.max.bytes=1234  # environment ROTUNDA_MESSAGE_MAX_BYTES") for line in printed)
    assert any(line.startswith(f"log.dirs={tmp_path}  #") for line in printed)
    rows = json.loads(command("print-config", "--json", *arguments).stdout)
    assert {"name": "num.io.threads", "value": "3", "origin": f"{file}:1"} in rows


def test_every_complaint_about_a_file_names_its_line_and_what_was_meant(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.netwrok.threads=3\nnum.io.threads=many\n")
    done = command("check-config", "--config", str(file))
    assert done.returncode == 2
    assert done.stdout == ""
    first, second = done.stderr.splitlines()
    assert first == f"rotunda: {file}:1: unknown setting num.netwrok.threads (did you mean num.network.threads?)"
    assert second.startswith(f"rotunda: {file}:2: Invalid value many for configuration num.io.threads")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("start", "--listen", "127.0.0.1"), "rotunda: --listen 127.0.0.1: expected HOST:PORT\n"),
        (("topic", "list", "--bootstrap", "localhost"), "rotunda: --bootstrap localhost: expected HOST:PORT\n"),
    ],
)
def test_an_address_without_a_port_is_named(arguments: tuple[str, ...], complaint: str) -> None:
    assert command(*arguments).stderr == complaint


def test_help_tells_the_exit_codes() -> None:
    assert "3 not running, 4 port or directory in use" in " ".join(command("--help").stdout.split())


@pytest.mark.parametrize(
    ("action", "documented"),
    [
        (("group", "list"), "array of objects: group, type, state, protocol_type"),
        (("group", "describe"), "lag_records, lag_seconds, member_id, notes []"),
        (("group", "delete"), "group, deleted, error"),
        (("group", "reset-offsets"), "topic, partition, before, after, warning, error"),
        (("topic", "alter"), "changes [{name, before, after}]"),
        (("topic", "describe"), "name, topic_id, internal, configs"),
    ],
)
def test_help_tells_what_json_holds(action: tuple[str, ...], documented: str) -> None:
    assert documented in " ".join(command(*action, "--help").stdout.split())


def test_the_version() -> None:
    assert re.fullmatch(r"rotunda .+, follows Apache Kafka 4\.4\n", command("--version").stdout)
