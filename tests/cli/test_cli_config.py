"""`rotunda config` against a whole broker: accepted settings are in force, rejected ones change nothing."""

import json
from typing import Any

import pytest

from tests.support.broker_process import BrokerProcess


def config(broker: BrokerProcess, *arguments: str) -> Any:
    """Return the JSON output of a command."""
    done = broker.command("config", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refusal(broker: BrokerProcess, *arguments: str) -> tuple[int, str]:
    done = broker.command("config", *arguments)
    return done.returncode, done.stderr


def test_settings_of_brokers_are_set_listed_described_and_deleted(broker: BrokerProcess) -> None:
    name = "log.retention.ms"
    assert config(broker, "set", f"{name}=2000", "--cluster") == [{"name": name, "before": None, "after": "2000"}]
    assert config(broker, "set", f"{name}=1000") == [{"name": name, "before": "2000", "after": "1000"}]
    done = broker.command("config", "list")
    assert f"{name}=1000  # set while running\n" in done.stdout
    assert f"{name}=2000  # set while running, cluster-wide\n" in broker.command("config", "list", "--cluster").stdout
    [described] = config(broker, "describe", name)
    assert (described["value"], described["dynamic"]) == ("1000", True)
    assert described["otherwise"] == [
        {"name": name, "value": "2000", "origin": "set while running, cluster-wide"},
        {"name": "log.retention.hours", "value": "168", "origin": "default"},
    ]
    text = broker.command("config", "describe", name, "num.partitions").stdout
    assert "  otherwise 2000, set while running, cluster-wide\n  otherwise log.retention.hours=168, default\n" in text
    assert "  dynamic: in force without a restart\n  Age at which" in text
    assert "num.partitions=1  # default\n  needs a restart\n" in text
    assert broker.command("config", "delete", name).stdout == f"{name}: 1000 -> 2000\n"
    assert broker.command("config", "delete", name, "--cluster").stdout == f"{name}: 2000 -> (not set)\n"
    listed = broker.command("config", "list").stdout
    assert name not in listed
    # The cluster has it from the beginning; nobody has set it.
    assert "min.insync.replicas" not in listed
    assert f"{name}=" in broker.command("config", "list", "--all").stdout


def test_settings_of_topics_and_groups(broker: BrokerProcess, topic: str) -> None:
    assert broker.command("topic", "create", topic).returncode == 0
    [changed] = config(broker, "set", "retention.ms=5000", "--topic", topic)
    assert (changed["name"], changed["after"]) == ("retention.ms", "5000")
    assert [each["name"] for each in config(broker, "list", "--topic", topic)] == ["retention.ms"]
    config(broker, "set", "consumer.session.timeout.ms=50000", "--group", topic)
    assert [each["value"] for each in config(broker, "list", "--group", topic)] == ["50000"]


def test_levels_of_loggers(broker: BrokerProcess) -> None:
    assert config(broker, "set", "rotunda.broker.cleaner=WARN", "--loggers") == [
        {"name": "rotunda.broker.cleaner", "before": "INFO", "after": "WARN"}
    ]
    assert (
        "rotunda.broker.cleaner.cleaner_process=WARN  # current level\n"
        in broker.command("config", "list", "--loggers").stdout
    )
    assert (
        broker.command("config", "delete", "rotunda.broker.cleaner", "--loggers").stdout
        == "rotunda.broker.cleaner: WARN -> INFO\n"
    )
    assert refusal(broker, "set", "broker.clean=WARN", "--loggers") == (
        1,
        "rotunda: INVALID_CONFIG: Logger broker.clean does not exist! (did you mean rotunda.broker.cleaner?)\n",
    )


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["set", "num.partitions=3"], 1, "dynamically: [num.partitions]; they need a restart"),
        (["set", "log.retention.ms=soon"], 1, "INVALID_REQUEST: Invalid value soon for configuration log.retention.ms"),
        (["set", "log.retention.m=1"], 1, "unknown setting log.retention.m (did you mean log.retention.ms?)"),
        (["set", "principal.builder.class=x.Y"], 1, "Java classes cannot be loaded"),
        (["set", "log.retention.ms=1", "num.partitions=2"], 1, "[num.partitions]"),
        (["set", "log.retention.ms"], 2, "expected KEY=VALUE"),
        (["set", "a=1", "a=2"], 2, "duplicate setting a"),
        (
            ["describe", "log.retention.m"],
            1,
            "unknown setting log.retention.m (did you mean log.retention.ms?)",
        ),
        (["list", "--topic", "nowhere"], 1, "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_what_is_rejected_changes_nothing(broker: BrokerProcess, arguments: list[str], code: int, message: str) -> None:
    exit_code, text = refusal(broker, *arguments)
    assert exit_code == code
    assert message in text
    assert config(broker, "list") == [] or all(each["name"] != "log.retention.ms" for each in config(broker, "list"))


def test_names_of_a_topic_and_of_its_settings_are_suggested(broker: BrokerProcess, topic: str) -> None:
    broker.command("topic", "create", topic)
    for arguments in (("describe", f"{topic}s"), ("alter", f"{topic}s", "--partitions", "2"), ("delete", f"{topic}s")):
        text = f"rotunda: UNKNOWN_TOPIC_OR_PARTITION: unknown topic {topic}s; did you mean {topic}?\n"
        assert broker.command("topic", *arguments).stderr == text
    assert refusal(broker, "set", "retntion.ms=1", "--topic", topic) == (
        1,
        "rotunda: INVALID_CONFIG: Unknown topic config name: retntion.ms (did you mean retention.ms?)\n",
    )
