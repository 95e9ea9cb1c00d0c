"""`rotunda status`, `top`, `requests` and `metrics`: what they print, and how they end when nobody listens."""

import json
import os
import subprocess
import sys

import pytest

from broker.cli_requests import _NOTHING
from tests.support.broker_process import BrokerProcess

#: The command, and what its first line begins with.
COMMANDS = {
    ("status",): "rotunda ready",
    ("top", "--once", "--interval", "0.1"): "rotunda ",
    ("requests",): "TIME ",
    ("metrics",): "# HELP rotunda_",
}
EMPTY = f"rotunda: {_NOTHING}\n"


def start(broker_run_dir: str, *arguments: str, columns: int = 80) -> subprocess.Popen[str]:
    """Start a command; its output is read by the caller."""
    line = [sys.executable, "-m", "broker", *arguments, "--run-dir", broker_run_dir]
    environment = {**os.environ, "COLUMNS": str(columns)}
    return subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("command", COMMANDS)
def test_where_no_broker_runs_the_exit_code_is_3(tmp_path: object, command: tuple[str, ...]) -> None:
    """Users.md section 3."""
    with start(str(tmp_path), *command) as process:
        out, complaint = process.communicate(timeout=30)
    assert process.returncode == 3
    assert "no broker runs with run directory" in out + complaint
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
    assert not complaint.replace(EMPTY, "")
    assert process.returncode in {0, 1}


def test_nothing_found_says_where_the_latest_are(broker: BrokerProcess) -> None:
    """Users.md section 3: nothing but the result on stdout."""
    done = broker.command("requests", "--topic", "no such topic", "--json")
    assert (json.loads(done.stdout), done.stderr, done.returncode) == ([], EMPTY, 0)


@pytest.mark.parametrize("columns", [30, 80, 200])
def test_top_fits_the_terminal(broker: BrokerProcess, columns: int) -> None:
    """What there is no room for is left out, from the right."""
    with start(str(broker.run_dir), "top", "--once", "--interval", "0.1", columns=columns) as process:
        out, complaint = process.communicate(timeout=30)
    assert (process.returncode, complaint) == (0, "")
    assert max(map(len, out.splitlines())) <= columns
    for name in ("processor 0", "handler 0", "controller"):
        assert any(line.split("  ")[0].strip() == name for line in out.splitlines())
    if columns == 200:
        assert "last words" in out
