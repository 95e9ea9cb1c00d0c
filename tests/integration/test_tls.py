"""TLS listeners: librdkafka's clients, openssl's, and certificates that are replaced meanwhile."""

import os
import signal
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.support.broker_process import BrokerProcess
from tests.support.broker_settings import set_on_broker
from tests.support.certificates import Authority
from tests.support.deadline import deadline_s, wait_until
from tests.support.secured_broker import SecuredBroker
from tests.support.wire_client import request_frame

HALF_OPEN = 2000
REPLACEMENTS = 5
API_VERSIONS = 18


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    settings = {
        "num.network.threads": 2,
        "socket.listen.backlog.size": HALF_OPEN,
        "listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0,EVERYWHERE://0.0.0.0:0",
        "listener.security.protocol.map": "EVERYWHERE:SSL",
        "insecure.listen": True,
    }
    broker = SecuredBroker(tmp_path_factory.mktemp("tls"), settings)
    broker.process.start()
    yield broker
    broker.process.stop()


def exchange(connection: socket.socket, number: int = 1) -> None:
    """Assert that a request gets its response on a connection."""
    connection.sendall(request_frame(API_VERSIONS, 0, number, b""))
    size = int.from_bytes(exactly(connection, 4), "big")
    assert int.from_bytes(exactly(connection, size)[:4], "big") == number


def exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        assert part, "the connection has ended"
        data += part
    return data


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_c18_clients_that_check_names_get_the_name_they_connected_to(secured: SecuredBroker, host: str) -> None:
    """On all interfaces, where the machine's own name, which the certificate does not have, would be rejected."""
    advertised = secured.process.status()["bootstrap"].split(",")[2]
    port = advertised.rpartition(":")[2]
    assert advertised == f"{socket.gethostname()}:{port}"
    settings = {
        **secured.librdkafka,
        "bootstrap.servers": f"{host}:{port}",
        "ssl.endpoint.identification.algorithm": "https",
    }
    [broker] = AdminClient(settings).list_topics(timeout=deadline_s()).brokers.values()
    assert f"{broker.host}:{broker.port}" == f"{host}:{port}"
    produced(settings, f"by-{host}", [b"value"])


def test_a_client_with_an_invalid_host_name_is_one_line_in_the_log(secured: SecuredBroker) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello = secured.context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        hello.do_handshake()
    written = len(secured.process.log_text())
    with socket.create_connection(secured.address, deadline_s()) as connection:
        connection.sendall(outgoing.read().replace(b"localhost", b"localh\xc3\xb6t"))
        while connection.recv(4096):
            pass
    line = "TLS handshake failed: the client sent an invalid server name"
    wait_until(lambda: line in secured.process.log_text()[written:], "the line")
    # Other tests' clients may be reported meanwhile.
    lines = secured.process.log_text()[written:].splitlines()
    assert len([each for each in lines if "handshake" in each]) == 1, lines
    assert not any("Traceback" in each for each in lines), lines


def serials(secured: SecuredBroker) -> set[int]:
    """Return the serial numbers that two connections are shown."""
    return {secured.shown_serial(), secured.shown_serial()}


def produced(settings: dict[str, str], topic: str, values: list[bytes]) -> None:
    producer = Producer(settings)
    failures: list[object] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(deadline_s()) == 0
    assert failures == [None] * len(values)


def test_h07_librdkafka_writes_and_reads_over_tls(secured: SecuredBroker) -> None:
    values = [b"small", bytes(range(256)) * 3800, b""]
    produced(secured.librdkafka, "plain", values)
    consumer = Consumer({**secured.librdkafka, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["plain"])
    records = [consumer.poll(deadline_s()) for _ in values]
    consumer.close()
    assert [None if record is None else record.value() for record in records] == values


def test_h07_certificates_are_replaced_under_load_and_drop_no_connection(secured: SecuredBroker) -> None:
    """Again and again by SIGHUP: new connections are shown the new one, those that are open stay."""
    connections = [secured.connect() for _ in range(8)]
    stop = threading.Event()
    failures: list[BaseException] = []

    def work(connection: ssl.SSLSocket) -> None:
        try:
            number = 0
            # Without a pause these threads would starve the one that replaces certificates.
            while not stop.wait(0.001):
                number += 1
                exchange(connection, number)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(each,)) for each in connections[:2]]
    for thread in threads:
        thread.start()
    try:
        for _ in range(REPLACEMENTS):
            serial = secured.replace_certificate().serial
            os.kill(secured.process.pid(), signal.SIGHUP)
            # Each of two processors is checked, in turn.
            wait_until(lambda serial=serial: serials(secured) == {serial}, "the new one is shown")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []
    for connection in connections:
        exchange(connection)
        connection.close()


def test_h05_a_listeners_certificate_is_set_while_it_runs_and_one_that_cannot_be_is_rejected(
    secured: SecuredBroker, tmp_path: Path
) -> None:
    """By the settings of one broker; the administrator receives the error, and nothing changes."""
    other = secured.authority.issue()
    setting = "listener.name.ssl.ssl.keystore.location"
    set_on_broker(secured.plain_bootstrap, setting, str(other.write(tmp_path, "other")))
    wait_until(lambda: secured.shown_serial() == other.serial, "the other certificate")
    mixed = tmp_path / "mixed.pem"
    mixed.write_text(other.key_pem + Authority().issue().pem)
    for location, says in (
        (tmp_path / "none.pem", "cannot be read"),
        (mixed, "certificate is not for the private key"),
    ):
        with pytest.raises(KafkaException, match=says):
            set_on_broker(secured.plain_bootstrap, setting, str(location))
    assert secured.shown_serial() == other.serial
    again = secured.authority.issue()
    again.write(tmp_path, "other")
    set_on_broker(secured.plain_bootstrap, setting, str(tmp_path / "other.pem"))
    wait_until(lambda: serials(secured) == {again.serial}, "the file that was replaced")
    set_on_broker(secured.plain_bootstrap, setting, str(secured.directory / "broker.pem"))


def test_h07_a_reload_of_unusable_certificates_changes_nothing(secured: SecuredBroker) -> None:
    """A key that is not the certificate's, half a file, no file: the line of the log names it."""
    serial = secured.shown_serial()
    file = secured.directory / "broker.pem"
    other = secured.authority.issue()
    for text, says in (
        (other.key_pem + secured.certificate.pem, "the certificate is not for the private key"),
        (secured.certificate.key_pem[:100], "has no private key"),
        (None, "cannot be read: No such file"),
    ):
        file.unlink() if text is None else file.write_text(text)
        position = secured.process.log_bytes()
        os.kill(secured.process.pid(), signal.SIGHUP)
        wait_until(
            lambda position=position, says=says: any(
                "SIGHUP: ignored" in line and says in line for line in secured.process.log_since(position)
            ),
            f"a line that says that the file {says}",
        )
        assert serials(secured) == {serial}
    secured.certificate.write(secured.directory, "broker")
    os.kill(secured.process.pid(), signal.SIGHUP)


def test_a30_a_listener_of_tls_is_opened_while_the_broker_runs(tmp_path: Path) -> None:
    """With a certificate of its own; its first connection may arrive before a processor has its settings."""
    broker = BrokerProcess(tmp_path, {"num.network.threads": 2}).start()
    try:
        authority = Authority()
        for number in range(5):
            listeners = f"listeners=PLAINTEXT://127.0.0.1:0,LATER{number}://127.0.0.1:0"
            own = f"listener.name.later{number}.ssl.keystore"
            file = authority.issue().write(tmp_path, f"later{number}")
            protocols = f"listener.security.protocol.map=LATER{number}:SSL"
            done = broker.command("config", "set", protocols, listeners, f"{own}.type=PEM", f"{own}.location={file}")
            assert done.returncode == 0, done.stderr
            opened = f"listener LATER{number}://"
            wait_until(lambda opened=opened: opened in broker.log_text(), "it is open")
            line = next(each for each in broker.log_text().splitlines() if opened in each)
            port = int(line.rsplit(" ", 1)[1])
            context = ssl.create_default_context(cadata=authority.pem)
            for _ in range(2):
                plain = socket.create_connection(("127.0.0.1", port), deadline_s())
                with context.wrap_socket(plain, server_hostname="localhost") as connection:
                    exchange(connection)
    finally:
        broker.stop()


@pytest.mark.parametrize(
    ("arguments", "is_served"),
    [
        (["-tls1", "-cipher", "ALL:@SECLEVEL=0"], False),
        (["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"], False),
        (["-tls1_2", "-cipher", "AES128-SHA:AES128-GCM-SHA256:@SECLEVEL=0"], False),
        (["-tls1_2", "-cipher", "NULL:aNULL:@SECLEVEL=0"], False),
        (["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"], True),
        (["-tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305"], True),
        (["-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256"], True),
        (["-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"], True),
    ],
)
def test_h07_old_versions_and_weak_ciphers_are_rejected(
    secured: SecuredBroker, arguments: list[str], is_served: bool
) -> None:
    """Without forward secrecy, without encryption, without authentication: as testssl walks them."""
    done = s_client(secured, *arguments)
    assert ("Cipher is (NONE)" not in done.stdout) == is_served, done.stdout + done.stderr
    assert (done.returncode == 0) == is_served


def test_h07_renegotiation_is_rejected(secured: SecuredBroker) -> None:
    done = s_client(secured, "-tls1_2", text="R\n")
    assert "no renegotiation" in done.stderr.lower(), done.stderr


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_h07_nothing_is_compressed_and_no_data_precede_the_handshake(secured: SecuredBroker, version: str) -> None:
    """CRIME, and replays: s_client requests compression; tickets allow no early data."""
    done = s_client(secured, version, "-comp")
    assert done.returncode == 0, done.stderr
    assert "Compression: NONE" in done.stdout
    assert ("Secure Renegotiation IS supported" in done.stdout) == (version == "-tls1_2")
    assert done.stdout.count("Max Early Data: 0\n") == done.stdout.count("Max Early Data:")


def test_h07_nobody_is_talked_into_an_older_version(secured: SecuredBroker) -> None:
    """RFC 7507: a client that reports a fallback from TLS 1.3 is rejected."""
    done = s_client(secured, "-tls1_2", "-fallback_scsv")
    assert "inappropriate fallback" in done.stderr, done.stderr


def s_client(secured: SecuredBroker, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    host, port = secured.address
    command = ["openssl", "s_client", "-connect", f"{host}:{port}", *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=deadline_s(), check=False)
