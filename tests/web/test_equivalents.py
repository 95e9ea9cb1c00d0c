"""The commands and queries that each screen shows as its equivalents: every one is run as shown."""

import html
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import duckdb
import pytest
from confluent_kafka import Consumer, Producer

from rotunda.web.screens import SCREENS, Screen
from tests.spark.test_runs import QUICK_TO_START
from tests.support.broker_process import PAGE, REPOSITORY, BrokerProcess
from tests.support.deadline import deadline_s, wait_until
from tests.support.status_page import page_text

pytestmark = pytest.mark.slow

EQUIVALENT = re.compile(r"<dt>(\w+)</dt><dd><code>(.*?)</code>", re.DOTALL)
DATASET = re.compile(r"/request-log/(\w+)/")
MINUTE_ENDS_S = 90.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Run a broker in a directory that shell and SQL read otherwise than people do, with something in its log."""
    directory = tmp_path_factory.mktemp("it's $HOME; a broker")
    running = BrokerProcess(directory, {**PAGE, "request.log.roll.ms": 200}, ephemeral=False).start()
    producer = Producer({"bootstrap.servers": running.bootstrap})
    producer.produce("orders", b"x")
    assert producer.flush(deadline_s()) == 0
    consumer = Consumer(
        {"bootstrap.servers": running.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    wait_until(lambda: consumer.poll(0.1), "the record")
    consumer.close()
    log = running.data_dir / "request-log"
    for dataset in ("requests", "groups"):
        wait_until(lambda dataset=dataset: [*log.glob(f"{dataset}/**/*.parquet")], f"a file of {dataset}")
    yield running
    running.stop()


def equivalents(broker: BrokerProcess, screen: Screen) -> dict[str, str]:
    """Return command and query of a screen as they are copied from it."""
    found = EQUIVALENT.findall(page_text(broker, "/" + screen.path.removeprefix("./"))[1])
    return {label: html.unescape(text) for label, text in found}


# A Spark job is slow on a busy machine.
@pytest.mark.timeout(200)
@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.name)
def test_the_command_does_what_the_screen_shows(broker: BrokerProcess, screen: Screen):
    """Users.md section 3."""
    name, *arguments = shlex.split(equivalents(broker, screen)["Command"])
    assert name == "rotunda"
    # Commands without an end only run for a moment.
    line = [sys.executable, "-m", "rotunda", *(each for each in arguments if each != "--follow")]
    done = subprocess.run(
        line, cwd=REPOSITORY, env=QUICK_TO_START, capture_output=True, text=True, timeout=deadline_s(190), check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("screen", [each for each in SCREENS if each.sql], ids=lambda screen: screen.name)
def test_the_query_finds_something(broker: BrokerProcess, screen: Screen):
    """Users.md section 3. The history has a row when a minute with requests has ended, which may be the second one."""
    query = equivalents(broker, screen)["SQL"]
    dataset = DATASET.findall(query)[0]
    log = broker.data_dir / "request-log"

    def finds() -> bool:
        has_files = any(log.glob(f"{dataset}/**/*.parquet"))
        return has_files and duckdb.sql(query).arrow().read_all().num_rows > 0

    wait_until(finds, f"a row of {dataset}", MINUTE_ENDS_S)


def test_the_configuration_is_that_of_the_running_broker(broker: BrokerProcess):
    """Users.md section 3: each value and its source."""
    printed = broker.command("print-config").stdout.splitlines()
    assert not [line for line in printed if line.startswith("num.replica.fetchers")], "a setting that only Kafka has"
    assert "request.log.roll.ms=200  # set when it was started" in printed
    assert "request.log.enable=true  # default" in printed
    done = broker.command("print-config", "--set", "num.io.threads=2")
    assert (done.returncode, done.stdout) == (2, "")
