"""`rotunda status`, `top`, `requests` and `metrics`: their output, and how they end when their output is closed."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rotunda.broker.cli.analysis.requests import _NOTHING
from rotunda.broker.cli.instance.top import Text, table_lines
from rotunda.broker.request_log.columns import DATASETS
from rotunda.broker.request_log.tables import schema_of
from rotunda.broker.text_table import width
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import command
from tests.support.deadline import deadline_s

#: The command, and the beginning of its first line.
COMMANDS = {
    ("status",): "rotunda ready",
    ("top", "--once", "--interval", "0.1"): "rotunda ",
    ("requests",): "TIME ",
    ("metrics",): "# HELP rotunda_",
}
EMPTY = f"rotunda: {_NOTHING}\n"
SEARCHED = re.compile(r"rotunda: searched [\d,]+ recorded requests? since 20[-\dT:]+")


def start(broker_run_dir: str, *arguments: str, columns: int = 80) -> subprocess.Popen[str]:
    """Start a command; its output is read by the caller."""
    line = [sys.executable, "-m", "rotunda", *arguments, "--run-dir", broker_run_dir]
    environment = {**os.environ, "COLUMNS": str(columns)}
    return subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("command", COMMANDS)
def test_where_no_broker_runs_the_exit_code_is_3(tmp_path: object, command: tuple[str, ...]) -> None:
    """Users.md section 3."""
    with start(str(tmp_path), *command) as process:
        out, complaint = process.communicate(timeout=deadline_s(60))
    assert process.returncode == 3
    assert "no broker runs with run directory" in out + complaint
    assert "start one with `rotunda start`" in out + complaint
    assert "Traceback" not in complaint


@pytest.mark.parametrize("command", COMMANDS)
def test_a_reader_that_goes_away_is_no_accident(broker: BrokerProcess, command: tuple[str, ...]) -> None:
    """As `head -1` does."""
    with start(str(broker.run_dir), *command) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.readline()
        process.stdout.close()
        complaint = process.stderr.read()
    assert first.startswith(COMMANDS[command])
    notes = complaint.replace(EMPTY, "").splitlines()
    assert not [each for each in notes if not (command == ("requests",) and SEARCHED.fullmatch(each))]
    assert process.returncode in {0, 1}


def test_nothing_found_says_where_the_latest_are(broker: BrokerProcess) -> None:
    """Users.md section 3: nothing but the result on stdout."""
    done = broker.command("requests", "--topic", "no such topic", "--json")
    assert (json.loads(done.stdout), done.returncode) == ([], 0)
    searched, empty = done.stderr.splitlines(keepends=True)
    assert SEARCHED.fullmatch(searched.strip())
    assert empty == EMPTY


def test_a_metric_is_described_without_a_broker(tmp_path: object) -> None:
    with start(str(tmp_path), "metrics", "--describe", "rotunda_processor_mutes_total") as process:
        out, complaint = process.communicate(timeout=deadline_s(60))
    assert (process.returncode, complaint) == (0, "")
    assert out.startswith("rotunda_processor_mutes_total\n  counter; labels: processor, cause (pipeline, arena, ")


def test_an_unknown_metric_is_bad_usage(tmp_path: object) -> None:
    with start(str(tmp_path), "metrics", "--describe", "rotunda_x") as process:
        _, complaint = process.communicate(timeout=deadline_s(60))
    assert (process.returncode, complaint) == (
        2,
        "rotunda: unknown metric rotunda_x; rotunda metrics prints all names\n",
    )


BAD_ARGUMENTS = [
    ("requests", "--limit", "0"),
    ("requests", "--limit", "-1"),
    ("requests", "--since", "soon"),
    ("requests", "--since", "9" * 5000 + "d"),
    ("top", "--once", "--interval", "nan"),
    ("top", "--once", "--interval", "0"),
]


@pytest.mark.parametrize("arguments", BAD_ARGUMENTS, ids=lambda arguments: " ".join(arguments)[:30])
def test_what_makes_no_sense_is_bad_usage(broker: BrokerProcess, arguments: tuple[str, ...]) -> None:
    """Users.md section 3: exit code 2 and a reason, no traceback."""
    done = broker.command(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    assert arguments[-1] in done.stderr


def test_a_time_before_the_first_request_is_all_there_is(broker: BrokerProcess) -> None:
    for long_ago in ("999999999d", "0001-01-01"):
        assert broker.command("requests", "--since", long_ago).returncode == 0


def test_of_many_files_the_slowest_and_the_latest_are_found(tmp_path: Path) -> None:
    """Row 22: file by file, because an hour of a busy broker is more than fits into memory."""
    directory = tmp_path / "request-log" / "requests" / "v=1" / "date=2024-05-31" / "hour=18"
    directory.mkdir(parents=True)
    schema = pa.schema(schema_of(DATASETS["requests"]))
    for number, durations in enumerate([(5, 90, 7), (80, 6, 8), (1, 2, 100)]):
        rows = [
            {**{field.name: _some(field.type) for field in schema}, "time": 1_717_178_400_000_000 + number * 10 + each,
             "totalTimeUs": total, "slow": True, "sampleWeight": 1}
            for each, total in enumerate(durations)
        ]  # fmt: skip
        pq.write_table(pa.Table.from_pylist(rows, schema), directory / f"part-1-1-{number}.parquet")
    arguments = ("requests", "--data-dir", str(tmp_path), "--since", "2024-05-31", "--json", "--limit", "4")
    assert [row["totalTimeUs"] for row in json.loads(command(*arguments, "--slow").stdout)] == [100, 90, 80, 8]
    # In order of arrival, the newest last.
    assert [row["totalTimeUs"] for row in json.loads(command(*arguments).stdout)] == [8, 1, 2, 100]
    before = command(*arguments, "--until", "2024-05-31T18:00:00.000010")
    assert [row["totalTimeUs"] for row in json.loads(before.stdout)] == [5, 90, 7]


def _some(kind: pa.DataType) -> object:
    if pa.types.is_boolean(kind):
        return True
    return "x" if pa.types.is_string(kind) or pa.types.is_dictionary(kind) else 0


def test_top_cuts_a_long_name_rather_than_numbers(broker: BrokerProcess) -> None:
    """A topic's name may have 249 characters."""
    long, short = "x" * 249, "orders"
    for name in (long, short):
        broker.command("topic", "create", name, "--partitions", "3")
    with start(str(broker.run_dir), "top", "--once", "--interval", "0.1", columns=100) as process:
        out, _ = process.communicate(timeout=deadline_s(60))
    for name in (long[:20], short):
        [line] = [line for line in out.splitlines() if line.strip().startswith(name)]
        assert line.split()[1] == "3"


@pytest.mark.parametrize("columns", [40, 60])
def test_a_table_fits_names_of_wide_characters(columns: int) -> None:
    """A group chooses its name freely; a wide character needs two columns of a terminal."""
    rows = [("注文" * 20, Text("17", "red"), "last error " * 20)]
    _, line = table_lines(("group", ">members", "last error"), rows, columns)
    assert width("".join(each.text for each in line).rstrip()) <= columns
    assert line[0].text.startswith("注文")
    assert ("17", "red") in [(each.text.strip(), each.style) for each in line]


@pytest.mark.parametrize("columns", [30, 80, 200])
def test_top_fits_the_terminal(broker: BrokerProcess, columns: int) -> None:
    """Columns without room are left out, from the right."""
    with start(str(broker.run_dir), "top", "--once", "--interval", "0.1", columns=columns) as process:
        out, complaint = process.communicate(timeout=deadline_s(60))
    assert (process.returncode, complaint) == (0, "")
    assert max(map(len, out.splitlines())) <= columns
    for name in ("processor 0", "handler 0", "controller"):
        assert any(line.split("  ")[0].strip() == name for line in out.splitlines())
    if columns == 200:
        assert "last error" in out
