"""`rotunda mirror-config`: its output, and its rejections. Its effect: `ops/compat --only mirror`."""

from pathlib import Path

import pytest

from rotunda.broker.cli.main import main
from rotunda.broker.config.properties_file import parse_properties

SECRET = "not to be shown"  # noqa: S105 - a planted one


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, str]:
    assert main(["mirror-config", "--to", "kafka.example:9092", *arguments]) == 0
    return {name: value for name, value, _ in parse_properties(capsys.readouterr().out)}


def test_it_prints_properties(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "--bootstrap", "here:1,here:2", "--topics", "orders,bills.*", "--tasks", "7")
    assert found["clusters"] == "rotunda, kafka"
    assert (found["rotunda.bootstrap.servers"], found["kafka.bootstrap.servers"]) == (
        "here:1,here:2",
        "kafka.example:9092",
    )
    assert (found["rotunda->kafka.topics"], found["rotunda->kafka.groups"]) == ("orders,bills.*", ".*")
    assert (found["rotunda->kafka.enabled"], found["tasks.max"]) == ("true", "7")
    assert not any(name.startswith("config.providers") for name in found)


def test_passwords_stay_in_the_files_that_have_them(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    here, there = tmp_path / "here.properties", tmp_path / "there.properties"
    here.write_text(f"bootstrap.servers=here:1\nsecurity.protocol=SASL_SSL\nsasl.jaas.config={SECRET}\n")
    there.write_text(f"security.protocol=SSL\nssl.keystore.password={SECRET}\n")
    found = printed(capsys, "--command-config", str(here), "--to-config", str(there))
    assert SECRET not in found.values()
    assert found["rotunda.bootstrap.servers"] == "here:1"
    assert found["rotunda.sasl.jaas.config"] == f"${{file:{here}:sasl.jaas.config}}"
    assert found["kafka.ssl.keystore.password"] == f"${{file:{there}:ssl.keystore.password}}"
    assert (found["rotunda.security.protocol"], found["kafka.security.protocol"]) == ("SASL_SSL", "SSL")
    assert found["config.providers"] == "file"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--to", "kafka"), "--to kafka: expected HOST:PORT"),
        (("--to", "kafka:1", "--topics", "a,("), "--topics (: missing ), unterminated subpattern"),
        (
            ("--to", "kafka:1", "--to-config", "FILE"),
            "sasl.password is a librdkafka name; MirrorMaker needs Java's sasl.jaas.config",
        ),
    ],
)
def test_what_it_rejects(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("sasl.password=x\n")
    given = [str(file) if each == "FILE" else each for each in arguments]
    assert main(["mirror-config", "--bootstrap", "here:1", *given]) == 2
    assert complaint in capsys.readouterr().err


def test_without_an_address_it_is_the_broker_that_runs_here(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["mirror-config", "--to", "kafka:1", "--run-dir", str(tmp_path)]) == 3
    assert "or use --bootstrap" in capsys.readouterr().err
