"""Levels of loggers that an admin sets are in force in every process, and forgotten by the next start (KIP-412)."""

import os
import re
import signal

from confluent_kafka.admin import AdminClient

from tests.support.broker_process import PAGE, BrokerProcess
from tests.support.deadline import deadline_s, wait_until

BROKER_SETTINGS = {**PAGE, "num.network.threads": 2, "num.io.threads": 2}
BROKER_OPTIONS = {"ephemeral": False}

_TAG = re.compile(r"\S+ DEBUG [a-z]+-(\d+) rotunda\.broker\.server_log\.log_levels: levels of loggers are now")


def set_levels(broker: BrokerProcess, *levels: str) -> None:
    done = broker.command("config", "set", "--loggers", *levels)
    assert done.returncode == 0, done.stderr


def told(broker: BrokerProcess, position: int) -> set[int]:
    """Return the processes that have logged since then, in a line of level DEBUG, that they applied new levels."""
    return {int(found[1]) for line in broker.log_since(position) if (found := _TAG.match(line))}


def test_every_process_applies_levels(broker: BrokerProcess) -> None:
    """Also one that replaces another later."""
    position = broker.log_bytes()
    set_levels(broker, "rotunda.broker.server_log=DEBUG")
    everybody = {broker.pid(), *(row["pid"] for row in broker.processes())}
    wait_until(lambda: told(broker, position) >= everybody, "a line of every process")
    position = broker.log_bytes()
    broker.kill("processor", 0)
    [replaced] = [row["pid"] for row in broker.processes("processor") if row["index"] == 0]
    wait_until(lambda: replaced in told(broker, position), "a line of the replacement")


def test_lines_depend_on_the_level(broker: BrokerProcess) -> None:
    """Of the processors, the controller and the supervisor."""

    def lines(position: int, text: str) -> list[str]:
        return [line for line in broker.log_since(position) if text in line]

    def seen_by_a_processor() -> list[str]:
        AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=deadline_s())
        return lines(position, " opened")

    position = broker.log_bytes()
    assert broker.command("topic", "create", "one").returncode == 0
    wait_until(lambda: lines(position, "created topic one"), "a line of the controller")
    assert not lines(position, " opened")
    levels = (
        "rotunda.broker.network.processor=DEBUG",
        "rotunda.broker.metadata.controller=WARN",
        "rotunda.broker.supervisor=ERROR",
    )
    set_levels(broker, *levels, "rotunda.broker.server_log.log_levels=DEBUG")
    wait_until(lambda: broker.pid() in told(broker, position), "the supervisor's turn")
    position = broker.log_bytes()
    os.kill(broker.pid(), signal.SIGUSR2)
    assert broker.command("topic", "create", "two").returncode == 0
    wait_until(seen_by_a_processor, "a line of a processor")
    set_levels(broker, "rotunda.broker.supervisor=INFO")
    wait_until(lambda: broker.pid() in told(broker, position), "the supervisor's turn")
    assert not lines(position, "created topic two")
    assert not lines(position, "SIGUSR2")
    os.kill(broker.pid(), signal.SIGUSR2)
    wait_until(lambda: lines(position, "SIGUSR2"), "a line of the supervisor")


def test_the_next_start_forgets_levels(broker: BrokerProcess) -> None:
    set_levels(broker, "root=ERROR")
    assert "root=ERROR" in broker.command("config", "list", "--loggers").stdout
    broker.stop()
    position = broker.log_bytes()
    broker.start()
    assert "root=INFO" in broker.command("config", "list", "--loggers").stdout
    assert broker.command("topic", "create", "t").returncode == 0
    wait_until(lambda: any("created topic t" in line for line in broker.log_since(position)), "an INFO line")
