"""The choice between the two: by the environment, and shown by the broker."""

import http.client
import json
import subprocess
import sys
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rotunda.broker import native
from tests.support.broker_process import PAGE, BrokerProcess
from tests.support.deadline import deadline_s

REPOSITORY = Path(__file__).parents[2]


def status(broker: BrokerProcess, *options: str) -> str:
    command = [sys.executable, "-m", "rotunda", "status", "--run-dir", str(broker.run_dir), *options]
    return subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout


def get(url: str, path: str) -> str:
    with closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=deadline_s())) as connection:
        connection.request("GET", path)
        return connection.getresponse().read().decode()


@pytest.mark.parametrize("variable", ["0", "1"])
def test_status_and_page_have_the_code_that_runs(broker_directory: Path, variable: str) -> None:
    is_native = variable == "0" and find_spec("rotunda.broker.native.compiled") is not None
    broker = BrokerProcess(broker_directory, PAGE, environment={native.PURE_PYTHON_VARIABLE: variable}).start()
    try:
        facts = json.loads(status(broker, "--json"))
        assert facts["is_native"] == is_native
        name = "compiled" if is_native else "pure Python"
        assert f"\ncode: {name}\n" in status(broker)
        assert json.loads(get(facts["status_url"], "/status.json"))["broker"]["is_native"] == is_native
        assert f", {name}</p>" in get(facts["status_url"], "/")
    finally:
        broker.stop()
