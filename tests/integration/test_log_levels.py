"""Levels of loggers that an admin sets are in force in every process, and forgotten by the next start (KIP-412)."""

import os
import re
import signal
from pathlib import Path

from confluent_kafka.admin import AdminClient

from tests.support.broker_process import PAGE, BrokerProcess
from tests.support.deadline import deadline_s, wait_until

OWN_SETTINGS = {**PAGE, "num.network.threads": 2, "num.io.threads": 2}
OWN_OPTIONS = {"ephemeral": False}

_TAG = re.compile(r"\S+ DEBUG [a-z]+-(\d+) rotunda\.broker\.server_log\.log_levels: levels of loggers are now")


def set_levels(broker: BrokerProcess, *levels: str) -> None:
    done = broker.command("config", "set", "--loggers", *levels)
    assert done.returncode == 0, done.stderr


def told(broker: BrokerProcess, position: int) -> set[int]:
    """Return the processes that have logged since then, in a line of level DEBUG, that they applied new levels."""
    return {int(found[1]) for line in broker.log_since(position) if (found := _TAG.match(line))}


def test_every_process_applies_levels(own_broker: BrokerProcess) -> None:
    """Also one that replaces another later."""
    position = own_broker.log_bytes()
    set_levels(own_broker, "rotunda.broker.server_log=DEBUG")
    everybody = {own_broker.pid(), *(row["pid"] for row in own_broker.processes())}
    wait_until(lambda: told(own_broker, position) >= everybody, "a line of every process")
    position = own_broker.log_bytes()
    own_broker.kill("processor", 0)
    [replaced] = [row["pid"] for row in own_broker.processes("processor") if row["index"] == 0]
    wait_until(lambda: replaced in told(own_broker, position), "a line of the replacement")


def test_lines_depend_on_the_level(own_broker: BrokerProcess) -> None:
    """Of the processors, the controller and the supervisor."""

    def lines(position: int, text: str) -> list[str]:
        return [line for line in own_broker.log_since(position) if text in line]

    def seen_by_a_processor() -> list[str]:
        AdminClient({"bootstrap.servers": own_broker.bootstrap}).list_topics(timeout=deadline_s())
        return lines(position, " opened")

    position = own_broker.log_bytes()
    assert own_broker.command("topic", "create", "one").returncode == 0
    wait_until(lambda: lines(position, "created topic one"), "a line of the controller")
    assert not lines(position, " opened")
    levels = (
        "rotunda.broker.network.processor=DEBUG",
        "rotunda.broker.metadata.controller=WARN",
        "rotunda.broker.supervisor=ERROR",
    )
    set_levels(own_broker, *levels, "rotunda.broker.server_log.log_levels=DEBUG")
    wait_until(lambda: own_broker.pid() in told(own_broker, position), "the supervisor's turn")
    position = own_broker.log_bytes()
    os.kill(own_broker.pid(), signal.SIGUSR2)
    assert own_broker.command("topic", "create", "two").returncode == 0
    wait_until(seen_by_a_processor, "a line of a processor")
    set_levels(own_broker, "rotunda.broker.supervisor=INFO")
    wait_until(lambda: own_broker.pid() in told(own_broker, position), "the supervisor's turn")
    assert not lines(position, "created topic two")
    assert not lines(position, "SIGUSR2")
    os.kill(own_broker.pid(), signal.SIGUSR2)
    wait_until(lambda: lines(position, "SIGUSR2"), "a line of the supervisor")


def test_the_next_start_forgets_levels(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, ephemeral=False)
    broker.start()
    set_levels(broker, "root=ERROR")
    assert "root=ERROR" in broker.command("config", "list", "--loggers").stdout
    broker.stop()
    position = broker.log_bytes()
    broker.start()
    try:
        assert "root=INFO" in broker.command("config", "list", "--loggers").stdout
        assert broker.command("topic", "create", "t").returncode == 0
        wait_until(lambda: any("created topic t" in line for line in broker.log_since(position)), "an INFO line")
    finally:
        broker.stop()
