"""`rotunda tls init`: files for TLS libraries, modes, files that are never replaced, and settings of clients."""

import ast
import json
import os
import shlex
import socket
import ssl
import stat
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from rotunda.broker.cli.cluster.client_snippets import Access, snippets
from tests.support.command_line import command
from tests.support.deadline import deadline_s


def init(directory: Path, *arguments: str) -> dict[str, Any]:
    done = command("tls", "init", "--json", "--dir", str(directory), *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def handshake(directory: Path, name: str, client: Path | None = None) -> dict[str, Any]:
    """Connect a client by a name to a server that requires a certificate if the client has one.

    Return the certificate that the server got; raise the exception of the client's library.
    """
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(directory / "server.pem")
    asking = ssl.create_default_context(cafile=str(directory / "ca.pem"))
    if client is not None:
        serving.load_verify_locations(directory / "ca.pem")
        serving.verify_mode = ssl.CERT_REQUIRED
        asking.load_cert_chain(client)
    here, there = socket.socketpair()
    here.settimeout(deadline_s())
    there.settimeout(deadline_s())
    found: list[Any] = []

    def serve() -> None:
        try:
            with serving.wrap_socket(there, server_side=True) as server:
                found.append(server.getpeercert() or {})
        except OSError as failure:
            found.append(failure)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        asking.wrap_socket(here, server_hostname=name).close()
    finally:
        here.close()
        thread.join()
    return found[0]


def test_every_name_is_in_the_servers_certificate(tmp_path: Path) -> None:
    made = init(tmp_path / "tls", "--host", "Kafka.Example", "--host", "bücher.example", "--host", "192.0.2.77")
    assert {"localhost", "127.0.0.1", "::1", "kafka.example", "xn--bcher-kva.example"} <= set(made["names"])
    assert socket.gethostname().lower() in made["names"]
    for name in made["names"]:
        handshake(tmp_path / "tls", name)
    with pytest.raises(ssl.SSLCertVerificationError, match="not valid for"):
        handshake(tmp_path / "tls", "other.example")


def test_a_clients_certificate_carries_its_name(tmp_path: Path) -> None:
    made = init(tmp_path / "tls", "--client", "alice")
    seen = handshake(tmp_path / "tls", "localhost", Path(made["files"]["client"]))
    assert (("commonName", "alice"),) in seen["subject"]
    assert made["settings"]["ssl.client.auth"] == "required"


def test_how_long_certificates_hold(tmp_path: Path) -> None:
    made = init(tmp_path / "tls")
    now = datetime.now(UTC)
    server, authority = (
        x509.load_pem_x509_certificate(Path(made["files"][name]).read_bytes()) for name in ("server", "ca")
    )
    assert server.not_valid_before_utc < now
    assert server.not_valid_after_utc - server.not_valid_before_utc < timedelta(days=825)
    assert now + timedelta(days=3649) < authority.not_valid_after_utc
    assert made["expires"] == server.not_valid_after_utc.isoformat()


def test_keys_are_private_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = init(tmp_path / "tls", "--client", "alice")
    finally:
        os.umask(before)
    assert mode(tmp_path / "tls") == 0o700
    assert {name: mode(Path(made["files"][name])) for name in ("ca_key", "server", "client")} == dict.fromkeys(
        ("ca_key", "server", "client"), 0o600
    )
    assert sorted(each.name for each in (tmp_path / "tls").iterdir()) == [
        "ca.key",
        "ca.pem",
        "client-alice.pem",
        "server.pem",
    ]


def test_nothing_is_replaced_and_what_is_missing_is_made(tmp_path: Path) -> None:
    directory = tmp_path / "tls"
    init(directory, "--client", "alice")
    before = {each: each.read_bytes() for each in directory.iterdir()}
    for arguments, complaint in (
        ((), "is not replaced"),
        (("--client", "alice"), "is not replaced"),
        (("--client", "bob", "--host", "other.example"), "--host would not change it"),
    ):
        done = command("tls", "init", "--dir", str(directory), *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert complaint in done.stderr
    init(directory, "--client", "bob")
    assert {each: each.read_bytes() for each in before} == before
    handshake(directory, "localhost", directory / "client-bob.pem")

    # As a kill between two files leaves it.
    for missing in ("server.pem", "ca.pem"):
        (directory / missing).unlink()
    (directory / "client-alice.pem").unlink()
    init(directory, "--client", "alice")
    assert (directory / "ca.key").read_bytes() == before[directory / "ca.key"]
    handshake(directory, "localhost", directory / "client-alice.pem")


def test_what_cannot_be_is_rejected_with_the_remedy(tmp_path: Path) -> None:
    for arguments in (("--host", "a b"), ("--host", "kafka.example:9092"), ("--host", ""), ("--client", "../alice")):
        done = command("tls", "init", "--dir", str(tmp_path / "tls"), *arguments)
        assert done.returncode == 2, arguments
        assert arguments[0] in done.stderr
    assert not (tmp_path / "tls").exists()
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    assert "chmod 700" in command("tls", "init", "--dir", str(shared)).stderr
    (tmp_path / "lost").mkdir(mode=0o700)
    (tmp_path / "lost" / "ca.pem").write_text("x")
    assert "no ca.key" in command("tls", "init", "--dir", str(tmp_path / "lost")).stderr


@pytest.mark.parametrize("user", ["", "admin"])
@pytest.mark.parametrize("certificate", [None, Path("/o'ne/cli\"ent.pem")])
def test_settings_of_every_client_can_be_read(user: str, certificate: Path | None) -> None:
    texts = snippets(Access("one:1,two:2", Path("/o'ne/ca.pem"), certificate, user))
    for client in ("confluent-kafka", "kafka-python", "aiokafka"):
        ast.parse(texts[client])
    assert "ssl.ca.location=/o'ne/ca.pem" in shlex.split(texts["kcat"])
    for name, text in texts.items():
        assert ("SASL_SSL" in text) is bool(user), name
