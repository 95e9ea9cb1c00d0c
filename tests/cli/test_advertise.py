"""`--advertise`: its settings, its rejections, and that clients receive it."""

import json
from pathlib import Path

import pytest

from rotunda.broker.cli.advertise import advertised_listeners
from rotunda.broker.config.listeners import Listener
from rotunda.broker.errors import UsageError
from tests.support.command_line import command

ONE = [Listener("PLAINTEXT", "", 9092, "PLAINTEXT")]
TWO = [*ONE, Listener("INNER", "10.0.0.1", 9094, "PLAINTEXT")]


@pytest.mark.parametrize(
    ("texts", "listeners", "set_to"),
    [
        (["kafka.example"], ONE, "PLAINTEXT://kafka.example:0"),
        (["kafka.example:19092"], ONE, "PLAINTEXT://kafka.example:19092"),
        (["2001:db8::7"], ONE, "PLAINTEXT://[2001:db8::7]:0"),
        (["[2001:db8::7]"], ONE, "PLAINTEXT://[2001:db8::7]:0"),
        (["[2001:db8::7]:5"], ONE, "PLAINTEXT://[2001:db8::7]:5"),
        (["kafka.example"], TWO, "PLAINTEXT://kafka.example:0,INNER://kafka.example:0"),
        (["inner://10.0.0.9:5"], TWO, "INNER://10.0.0.9:5"),
        (["INNER://10.0.0.9", "kafka.example"], TWO, "PLAINTEXT://kafka.example:0,INNER://10.0.0.9:0"),
    ],
)
def test_c18_what_it_sets(texts: list[str], listeners: list[Listener], set_to: str) -> None:
    assert advertised_listeners(texts, listeners) == set_to


@pytest.mark.parametrize(
    ("texts", "complaint"),
    [
        (["host:9092"], "--advertise host:9092: there are 2 listeners, name one, as in PLAINTEXT://host:9092"),
        (["one", "two"], "--advertise two: each listener has one advertised address"),
        (["INNER://one", "INNER://two"], "--advertise INNER://two: each listener has one advertised address"),
        *(
            ([text], "expected HOST, HOST:PORT or NAME")
            for text in ("", ":9092", "host:", "host:70000", "[::1", "a,b", "A://")
        ),
    ],
)
def test_what_it_rejects(texts: list[str], complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        advertised_listeners(texts, TWO)
    assert complaint in str(caught.value)


def test_c18_it_is_a_setting_like_any_other(tmp_path: Path) -> None:
    """Of a listener on all interfaces, which the address decides whether it may be opened; and shown with its place."""
    flags = ("--listen", "0.0.0.0:0", "--advertise", "localhost:19092")
    done = command("print-config", "--json", *flags)
    assert done.returncode == 0, done.stderr
    shown = {each["name"]: each["value"] for each in json.loads(done.stdout)}
    assert shown["advertised.listeners"] == "PLAINTEXT://localhost:19092"
    run = str(tmp_path / "run")
    started = command("start", "--daemon", "--wait", "--json", "--ephemeral", "--run-dir", run, *flags)
    try:
        assert started.returncode == 0, started.stderr
        assert json.loads(started.stdout)["bootstrap"] == "localhost:19092"
    finally:
        command("stop", "--run-dir", run)


def test_commands_on_this_machine_reach_a_broker_whose_clients_are_sent_elsewhere(tmp_path: Path) -> None:
    """As in a container, whose own programs do not use the published address."""
    run = ("--run-dir", str(tmp_path / "run"))
    flags = ("--listen", "127.0.0.1:0", "--advertise", "nowhere.invalid:9", "--set", "status.port=0")
    assert command("start", "--daemon", "--wait", "--ephemeral", *run, *flags).returncode == 0
    try:
        created = command("topic", "create", "orders", *run)
        assert created.returncode == 0, created.stderr
        assert "orders" in command("topic", "list", *run).stdout
        assert "sends clients to nowhere.invalid:9" in command("doctor", *run).stdout
        mirrored = command("mirror-config", "--to", "kafka.example:9092", *run).stdout
        assert "rotunda.bootstrap.servers = nowhere.invalid:9\n" in mirrored
    finally:
        command("stop", *run)


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (("--set", "advertised.listeners=PLAINTEXT://a:1", "--advertise", "b"), "exclude each other"),
        (("--advertise", "OTHER://b"), "no protocol for listener OTHER"),
        (("--advertise", "SSL://b"), "unknown listener SSL"),
        (("--advertise", "[::]"), "cannot be advertised; use a routable address"),
        (("--listen", "0.0.0.0:0", "--advertise", "kafka.example"), "allow it with insecure.listen=true"),
    ],
)
def test_a_start_that_it_rejects(flags: tuple[str, ...], complaint: str) -> None:
    done = command("check-config", *flags)
    assert (done.returncode, complaint in done.stderr) == (2, True), done.stderr
