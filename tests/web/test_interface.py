"""The HTTP interface against its own description: schemathesis sends requests within the description, and others."""

import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.broker_process import PAGE, BrokerProcess
from tests.support.deadline import deadline_s
from tests.support.status_page import ask

BROKER_SETTINGS = PAGE
pytestmark = pytest.mark.slow


def test_responses_are_what_the_description_says(broker: BrokerProcess, tmp_path: Path):
    """Streams never end, so they are left out here."""
    url = f"{broker.status()['status_url']}openapi.json"
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "schemathesis"), "run", url, "--max-examples", "8", "--no-color",
            "--exclude-path-regex", "^/events/", "--generation-database", "none", "--seed", "1",
            "--wait-for-schema", str(deadline_s()), "--request-timeout", str(deadline_s(10)),
        ],
        cwd=tmp_path, capture_output=True, text=True, timeout=deadline_s(140), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_metrics_are_what_prometheus_reads(broker: BrokerProcess):
    _, _, body = ask(broker, "/metrics")
    families = {family.name for family in text_string_to_metric_families(body.decode())}
    assert any(name.startswith("rotunda_") for name in families)
