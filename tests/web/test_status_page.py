"""The status page of a real broker: its responses and rejections, and that the broker works without it."""

import http.client
import json
import os
import signal
import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.support.broker_process import PAGE, BrokerProcess
from tests.support.deadline import deadline_s, wait_until
from tests.support.status_page import address, ask

pytestmark = pytest.mark.slow

BROKER_SETTINGS = {**PAGE, "num.network.threads": 1, "num.io.threads": 2}


def status(broker: BrokerProcess) -> dict[str, Any]:
    """Return /status.json."""
    code, _, body = ask(broker, "/status.json")
    assert code == 200
    return json.loads(body)


def test_the_ready_line_and_the_run_record_name_the_page(broker: BrokerProcess):
    """Users.md section 3: the ready line has the status URL."""
    assert "status_url=http://127.0.0.1:" in broker.log_text()
    printed = broker.command("status").stdout
    assert f"status page: http://127.0.0.1:{address(broker)[1]}/" in printed
    assert "web " in printed


@pytest.mark.parametrize(
    "path", ["/", "/clients", "/topics", "/groups", "/requests", "/reports", "/processes", "/configuration"]
)
def test_every_screen_is_served_under_its_policy(broker: BrokerProcess, path: str):
    """Row 23."""
    code, headers, body = ask(broker, path)
    assert code == 200
    assert headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in headers["content-security-policy"]
    assert b"<main" in body


def test_a_foreign_host_is_rejected_and_nothing_can_be_written(broker: BrokerProcess):
    """Row 23: read-only, and not to be had under the name of another site."""
    assert ask(broker, "/status.json", Host="evil.example")[0] == 421
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert ask(broker, "/status.json", method)[0] == 405
    assert ask(broker, "/../../etc/passwd")[0] == 404
    assert ask(broker, "/static/%2e%2e/app.py")[0] == 404


def test_status_metrics_and_probes(broker: BrokerProcess, topic: str):
    """Users.md rows 17 and 18: the input of Prometheus and probes."""
    broker.command("topic", "create", topic, "--partitions", "2")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "page-test"})
    for number in range(50):
        producer.produce(topic, f"record {number}")
    producer.flush(deadline_s())

    def told() -> bool:
        found = [each for each in status(broker)["topics"] if each["name"] == topic]
        return bool(found) and found[0]["records"] == 50 and len(found[0]["partitions"]) == 2

    wait_until(told, "the topic's records on the page")
    wait_until(lambda: any(each["client_id"] == "page-test" for each in status(broker)["clients"]), "the client")
    code, headers, body = ask(broker, "/metrics")
    assert (code, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert b"rotunda_" in body
    assert ask(broker, "/healthz")[2] == b"ok\n"
    # A process of a busy machine may not have turned for a while.
    wait_until(lambda: ask(broker, "/readyz")[2] == b"ready\n", "readiness")
    for probe in ("/healthz", "/readyz"):
        code, headers, body = ask(broker, probe, "HEAD")
        assert (code, headers["content-length"], body) == (200, str(len(ask(broker, probe)[2])), b"")
    producer.flush(1)


def test_requests_are_there_before_their_file_is(broker: BrokerProcess, topic: str):
    """Row 22: the latest and the slowest requests with their phases."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "tail-test"})
    producer.produce(topic, b"x")
    producer.flush(deadline_s())

    def rows() -> list[dict[str, Any]]:
        found = json.loads(ask(broker, "/view/requests")[2])
        return [row for row in found["tail"] if row["client_id"] == "tail-test" and row["topic"] == topic]

    wait_until(lambda: any(row["api"] == "Produce" for row in rows()), "the produce request")
    row = next(row for row in rows() if row["api"] == "Produce")
    assert row["records"] == 1
    assert row["error"] is None
    assert sum(row["phases_us"]) == pytest.approx(row["total_us"], abs=1)

    def is_among_clients() -> bool:
        clients = json.loads(ask(broker, "/view/clients")[2])["clients"]
        return any("Produce" in {call["api"] for call in each["calls"]} for each in clients)

    wait_until(is_among_clients, "a client that produces")


def test_events_come_at_once_and_then_every_second(broker: BrokerProcess):
    with closing(http.client.HTTPConnection(*address(broker), timeout=deadline_s())) as connection:
        connection.request("GET", "/events/overview")
        answer = connection.getresponse()
        assert answer.getheader("content-type", "").startswith("text/event-stream")
        assert answer.readline() == b"retry: 1000\n"
        first = json.loads(answer.readline().removeprefix(b"data: "))
        answer.readline()
        second = json.loads(answer.readline().removeprefix(b"data: "))
    assert second["time_ms"] > first["time_ms"]
    assert second["ready"]


def test_killing_the_page_changes_nothing_for_clients(broker: BrokerProcess, topic: str):
    """It is replaced, its port is never closed, and a client notices nothing."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"before")
    assert producer.flush(deadline_s()) == 0
    restarts = [each["restarts"] for each in broker.processes() if each["role"] != "web"]
    [web] = broker.processes("web")
    os.kill(web["pid"], signal.SIGKILL)
    wait_until(lambda: broker.processes("web")[0]["pid"] != web["pid"], "the replacement")
    # Requests that arrive before the replacement is there are served by it.
    assert ask(broker, "/healthz")[0] == 200
    [again] = broker.processes("web")
    assert again["pid"] != web["pid"]
    assert again["restarts"] == web["restarts"] + 1
    producer.produce(topic, b"after")
    assert producer.flush(deadline_s()) == 0
    assert restarts == [each["restarts"] for each in broker.processes() if each["role"] != "web"]


def test_a_killed_handler_is_shown_as_restarted(broker: BrokerProcess):
    """With its signal."""
    before = broker.processes("handler")[1]
    os.kill(before["pid"], signal.SIGKILL)

    def shown() -> bool:
        [found] = [each for each in status(broker)["processes"] if (each["role"], each["index"]) == ("handler", 1)]
        return found["restarts"] == before["restarts"] + 1 and found["serves"] and found["exit_status"] == -9

    wait_until(shown, "the restart on the page")


def test_nobody_knows_how_idle_a_process_is_that_hangs(broker: BrokerProcess):
    """B30, E01: a loop that does not turn publishes nothing, which is no idleness."""
    handler = broker.processes("handler")[0]
    wait_until(lambda: status(broker)["handlers"][0]["idle"] is not None, "an idle share")
    os.kill(handler["pid"], signal.SIGSTOP)
    try:

        def only_one_is_unknown() -> bool:
            hanging, other = status(broker)["handlers"][:2]
            return hanging["idle"] is None and other["idle"] is not None

        wait_until(only_one_is_unknown, "no idle share of the one that hangs")
    finally:
        os.kill(handler["pid"], signal.SIGCONT)
    wait_until(lambda: status(broker)["handlers"][0]["idle"] is not None, "an idle share again")


def test_top_prints_the_same_once(broker: BrokerProcess):
    done = broker.command("top", "--once", "--interval", "0.2")
    assert done.returncode == 0, done.stderr
    assert "handler 1" in done.stdout
    assert "ready" in done.stdout


@pytest.fixture
def taken_port() -> Any:
    """Yield a port that another socket listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def test_a_port_that_was_asked_for_and_is_taken_stops_the_start(broker_directory: Path, taken_port: int):
    """Exit code 4, as for any other port."""
    broker = BrokerProcess(broker_directory, {**PAGE, "status.port": taken_port})
    with pytest.raises(AssertionError, match="ended with exit status 4"):
        broker.start()
    assert "the status page cannot listen" in broker.log_text()


def test_no_page_when_there_is_to_be_none(broker_directory: Path):
    broker = BrokerProcess(broker_directory).start()
    try:
        assert broker.status()["status_url"] == ""
        assert "status page: off" in broker.command("status").stdout
        [web] = broker.processes("web")
        assert (web["state"], web["pid"]) == ("empty", 0)
    finally:
        broker.stop()


def test_the_page_costs_little_until_somebody_looks(broker_directory: Path):
    """The web framework is loaded with the first request."""
    broker = BrokerProcess(broker_directory, PAGE).start()
    try:
        wait_until(lambda: broker.processes("web")[0]["ready"], "the page")
        [web] = broker.processes("web")
        assert not _has_loaded(web["pid"], "pydantic_core")
        assert ask(broker, "/healthz")[0] == 200
        assert _has_loaded(web["pid"], "pydantic_core")
    finally:
        broker.stop()


def _has_loaded(pid: int, library: str) -> bool:
    return library in Path(f"/proc/{pid}/maps").read_text()
