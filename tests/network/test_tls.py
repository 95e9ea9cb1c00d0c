"""TLS in a processor: unfinished handshakes, bytes without events, and responses byte by byte."""

import gc
import logging
import os
import random
import socket
import ssl
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest

from rotunda.broker.ipc.response_writer import FileRange
from rotunda.broker.network.processor.channel import ReadBlockedByWriteError
from rotunda.broker.network.processor.throttling.mute_state import MuteCause
from rotunda.broker.network.processor.tls import tls_handshake, tls_kernel_transport, tls_transport
from rotunda.broker.security.session import ANONYMOUS, ANONYMOUS_USER, Sessions
from tests.support.certificates import Authority
from tests.support.feeds import random_seed
from tests.support.processor_bench import ProcessorBench, frame
from tests.support.tls_client import AUTHORITY, TlsClient, client_context, tls_bench

LARGE_BYTES = 300_000


@pytest.fixture(params=[False, True], ids=["in memory", "on the socket"])
def bench(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProcessorBench]:
    """Return a bench with OpenSSL in memory, or as on a host with kernel TLS."""
    monkeypatch.setattr(tls_kernel_transport, "is_offered", lambda: request.param)
    with tls_bench() as bench:
        yield bench


def responses(bench: ProcessorBench, client: TlsClient, number: int = 1) -> None:
    """Assert that a request of the client gets its response."""
    client.send(frame(number))
    [request] = bench.requests(1)
    assert request.payload == frame(number)[4:]
    bench.targets[0].answer(request, b"\0\0\0\4%d" % (1000 + number))
    assert client.receive(8) == b"\0\0\0\4%d" % (1000 + number)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_b06_a_handshake_is_the_preparation_of_its_channel(bench: ProcessorBench, version: ssl.TLSVersion) -> None:
    """Byte by byte, with other clients served meanwhile; a silent client does not keep the loop awake."""
    client = TlsClient(bench, client_context(minimum_version=version, maximum_version=version))
    other = TlsClient(bench).shake_hands()
    while not client.is_ready:
        for byte in client.flight():
            client.plain.send(bytes([byte]))
            bench.run_once()
        # On a busy machine the last bytes arrive later.
        bench.turn_until(lambda: not bench.restless(), "nothing wakes the loop")
        responses(bench, other)
    assert client.tls.version() == {0x303: "TLSv1.2", 0x304: "TLSv1.3"}[version.value]
    responses(bench, client)
    assert bench.published_value("handshakes") == 2
    assert bench.value("handshakes_under_way") == 0


def test_b04_requests_after_a_large_one_in_the_same_record_are_read(bench: ProcessorBench) -> None:
    """Exactly the bytes of a large request are received: the following ones remain inside TLS."""
    client = TlsClient(bench).shake_hands()
    large = frame(1, os.urandom(LARGE_BYTES))
    client.send(large + frame(2) + frame(3))
    first, *others = bench.requests(3)
    assert bytes(bench.arena[first.address : first.address + len(large) - 4]) == large[4:]
    assert [each.payload for each in others] == [frame(2)[4:], frame(3)[4:]]
    assert not bench.restless()


@pytest.mark.parametrize("pipeline", [1, 2])
def test_b04_bytes_left_inside_tls_are_read_when_a_mute_ends(pipeline: int) -> None:
    with tls_bench(pipeline_max=pipeline, pipeline_resume=1) as bench:
        client = TlsClient(bench).shake_hands()
        frames = [frame(1, os.urandom(LARGE_BYTES)), frame(2), frame(3), frame(4, os.urandom(LARGE_BYTES)), frame(5)]
        client.send(b"".join(frames))
        responded: list[int] = []

        def all_responded() -> bool:
            # Turns without a response as well: the channel is muted meanwhile.
            bench.run_once(5)
            for request in bench.targets[0].take():
                bench.targets[0].answer(request, b"\0\0\0\4abcd")
                responded.append(request.correlation_id)
            return len(responded) == len(frames)

        bench.turn_until(all_responded, "every request has come")
        assert responded == [1, 2, 3, 4, 5]
        assert client.receive(40) == b"\0\0\0\4abcd" * 5


@pytest.mark.parametrize("send_buffer", [0, 4096])
def test_fetched_records_arrive_as_they_are_in_the_file(bench: ProcessorBench, send_buffer: int) -> None:
    """More than 1 MB from a file, between bytes of the ring, also with a socket that accepts few bytes (`B09`)."""
    content = os.urandom(3_000_000)
    segment = bench.directory / "segment"
    segment.write_bytes(content)
    inode = segment.stat().st_ino
    client = TlsClient(bench, send_buffer=send_buffer).shake_hands()
    for number in range(3):
        client.send(frame(number))
    requests = bench.requests(3)
    path = os.fsencode(segment)
    ranges = [FileRange(4, path, inode, 7, 2_500_000), FileRange(2, path, inode, 2_600_000, 33)]
    expected = b"head" + content[7:2_500_007] + b"--" + content[2_600_000:2_600_033] + b"tail"
    for request in requests:
        bench.targets[0].answer_ranges(request, b"head--tail", ranges)
    for _ in requests:
        assert client.receive(len(expected)) == expected
    assert not bench.restless()


def test_a_read_that_has_to_write_first_continues_when_it_can(bench: ProcessorBench) -> None:
    """For example, a client requests new keys while it reads nothing.

    This is simulated: no library can be forced to do it.
    """
    client = TlsClient(bench).shake_hands()
    bench.run_once()
    [channel] = bench.processor._selector.channels.values()
    real, muted = channel.recv, []

    def recv(most: int) -> bytes:
        if not muted:
            muted.append(True)
            raise ReadBlockedByWriteError
        return real(most)

    channel.recv = recv
    client.send(frame(1))
    bench.turn_until(lambda: muted, "the read has been tried")
    assert channel.muted == MuteCause.OUTPUT
    [request] = bench.requests(1)
    assert request.payload == frame(1)[4:]
    assert not channel.muted
    assert not bench.restless()


def test_connections_in_each_others_midst_are_given_their_own_records() -> None:
    """Handshakes, alerts, responses and ends of many, a step at a time.

    OpenSSL writes the records of all to one buffer.
    """
    seed = random_seed()
    print(f"seed {seed}")
    chance = random.Random(seed)
    with tls_bench() as bench:
        clients, others = [TlsClient(bench) for _ in range(12)], [TlsClient(bench) for _ in range(12)]
        begun = [*clients, *others]
        while not all(each.is_ready for each in clients):
            client = chance.choice(begun)
            if client in others and not chance.randrange(4):
                # One closes during its handshake, or sends an invalid record and gets an alert.
                others.remove(client)
                begun.remove(client)
                if chance.randrange(2):
                    client.plain.send(b"\x16\x03\x01\0\x04\xff\0\0\0")
                    bench.wait_closed(client.plain)
                client.plain.sock.close()
            elif flight := client.flight():
                client.plain.send(flight)
            bench.run_once()
            assert not tls_transport._outgoing.pending
            assert not tls_transport._incoming.pending
        for number in range(60):
            responses(bench, chance.choice(clients), number)
        for client in clients:
            responses(bench, client)


def test_requests_in_each_others_midst_are_read_from_their_own_records() -> None:
    """Large and small requests in records of any size, sent in chunks of any size.

    OpenSSL reads all from one buffer. Received bytes after a large request wait until their connection's next turn.
    """
    seed = random_seed()
    print(f"seed {seed}")
    chance = random.Random(seed)
    with tls_bench() as bench:
        clients = [TlsClient(bench).shake_hands() for _ in range(6)]
        unsent = [b""] * len(clients)
        expected: dict[int, bytes] = {}
        for number in range(60):
            size = chance.choice((10, 1000, 5000, 30_000, 70_000, 150_000))
            sent = frame(number, chance.randbytes(size))
            expected[number] = sent[4:]
            most, at, of = chance.choice((9, 300, 1000, 16384)), 0, chance.randrange(len(clients))
            # Small records are slow to create: only the start and the end of a request use them.
            for cut in (*range(0, min(size, 20 * most), most), max(size - 9, 0), len(sent)):
                if cut > at:
                    unsent[of] += clients[of].records(sent[at:cut])
                    at = cut
        got: dict[int, bytes] = {}

        def sent_and_received() -> bool:
            of = chance.randrange(len(clients))
            piece = unsent[of][: chance.choice((1, 100, 3000, 20_000, 100_000))]
            unsent[of] = unsent[of][len(piece) :]
            clients[of].plain.send(piece)
            bench.run_once()
            assert not tls_transport._incoming.pending
            for request in bench.targets[0].take():
                got[request.correlation_id] = request.payload
                bench.targets[0].answer(request, b"\0\0\0\4abcd")
            return len(got) == len(expected)

        bench.turn_until(sent_and_received, "every request has come")
        assert got == expected
        assert not bench.restless()


def test_half_open_handshakes_end_by_time_and_by_number() -> None:
    """`H07`: some clients never send, some stop midway; an established one is served throughout."""
    with tls_bench(max_connection_handshakes=20, connection_handshake_timeout_ms=10_000) as bench:
        working = TlsClient(bench).shake_hands()
        silent = [bench.connect() for _ in range(10)]
        bench.clock.advance_ms(5_000)
        begun = [TlsClient(bench) for _ in range(10)]
        for each in begun:
            each.plain.send(each.flight()[:50])
        bench.run_once(3)
        assert bench.closed() == []
        assert bench.published_value("handshakes_under_way") == 20
        more = [bench.connect() for _ in range(3)]
        for each in silent[:3]:
            bench.wait_closed(each)
        responses(bench, working)
        bench.clock.advance_ms(5_000)
        for each in silent[3:]:
            bench.wait_closed(each)
        assert sorted(bench.closed()) == [each.serial for each in silent]
        bench.clock.advance_ms(5_000)
        for each in (*(each.plain for each in begun), *more):
            bench.wait_closed(each)
        responses(bench, working)
        assert bench.value("connections_closed", "failed_authentication") == 23


def test_h07_nothing_of_tls_is_kept_of_a_connection_that_has_ended(bench: ProcessorBench) -> None:
    """It is counted, then released; thousands of half-open ones in a second would use 100 MB in OpenSSL."""
    clients = [bench.connect() for _ in range(20)]
    before = transports()
    for client in clients:
        client.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    bench.run_once(3)
    assert transports() == before + len(clients)
    for client in clients:
        client.sock.close()
    bench.run_once(3)
    assert len(bench.closed()) == len(clients)
    assert transports() == before


def transports() -> int:
    """Return the number of live TLS connection objects."""
    return sum(isinstance(each, tls_handshake.Connection) for each in gc.get_objects())


# An unraisable exception about an invalid server name: `server_log.log_setup` ignores it in a process; here pytest
# must.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_mutated_handshakes_end_their_connections_and_nothing_else(bench: ProcessorBench) -> None:
    """Each of both flights of a client, with bytes changed, inserted, omitted or cut; the seed is printed."""
    seed = random_seed()
    print(f"seed {seed}")
    chance = random.Random(seed)
    working = TlsClient(bench).shake_hands()
    context = client_context()
    for number in range(300):
        client = TlsClient(bench, context)
        for flight in range(2):
            data = bytearray(client.flight())
            if flight == number % 2:
                mutate(data, chance)
            if not client.plain.ended:
                try:
                    client.plain.send(bytes(data))
                except OSError:
                    break
            bench.run_once(3)
            try:
                client.flight()
            except (ssl.SSLError, OSError):
                break
        client.plain.sock.close()
        bench.wait_closed(client.plain)
        for memory in (tls_transport._incoming, tls_transport._outgoing):
            assert not memory.pending, "what is left of one connection would go to the next"
    responses(bench, working)
    assert bench.value("connections_closed", "fault") == 0
    assert bench.published_value("handshakes_under_way") == 0


def mutate(data: bytearray, chance: random.Random) -> None:
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data)) if data else 0
        kind = chance.randrange(4)
        if kind == 0 and data:
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            data[at:at] = chance.randbytes(chance.randint(1, 40))
        elif kind == 2:
            del data[at : at + chance.randint(1, 40)]
        else:
            del data[at:]


@pytest.mark.parametrize(
    ("asked", "reached"),
    [("localhost", "localhost"), ("LocalHost", "localhost"), ("other.example", ""), (None, "127.0.0.1")],
)
def test_c18_a_client_is_given_the_name_that_it_asks_for(
    bench: ProcessorBench, asked: str | None, reached: str
) -> None:
    """Or the address that it has reached, if the certificate is for it: here localhost and 127.0.0.1."""
    listener = bench.processor.tls.listeners[0].advertised_at("", 9093)
    bench.processor.tls.listeners = [listener]
    client = TlsClient(bench, client_context(check_hostname=False), server_name=asked).shake_hands()
    client.send(frame(1))
    [request] = bench.requests(1)
    session = Sessions().of(request.session) if request.session else ANONYMOUS
    assert (session.user, session.host, session.reached) == (ANONYMOUS_USER, "", reached)
    assert (listener.address_for(session) == (reached, 9093)) is (reached != "")


@pytest.mark.parametrize(("shows", "user"), [(True, "CN=alice,O=x"), (False, "ANONYMOUS")])
def test_h06_the_user_is_the_name_in_the_certificate(shows: bool, user: str) -> None:
    from cryptography import x509  # noqa: PLC0415
    from cryptography.x509.oid import NameOID  # noqa: PLC0415

    name = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "x"), x509.NameAttribute(NameOID.COMMON_NAME, "alice")]
    )
    with tls_bench(ssl_client_auth="requested") as bench:
        own = AUTHORITY.issue(name) if shows else None
        client = TlsClient(bench, client_context(own)).shake_hands()
        client.send(frame(1))
        [request] = bench.requests(1)
        sessions = Sessions()
        assert (sessions.of(request.session).user if request.session else "ANONYMOUS") == user
        if shows:
            assert sessions.of(request.session).host == "127.0.0.1"
        [channel] = bench.processor._selector.channels.values()
        assert channel.user == user


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("has_ticket", [True, False])
def test_h06_a_resumed_session_has_the_same_user_until_the_truststore_changes(
    version: ssl.TLSVersion, has_ticket: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A session is resumed without the certificate; a listener with changed trust rejects the resumption."""
    context = client_context(AUTHORITY.issue("alice"), minimum_version=version, maximum_version=version)
    if not has_ticket:
        context.options |= ssl.OP_NO_TICKET
    with tls_bench(ssl_client_auth="required") as bench:
        first = TlsClient(bench, context).shake_hands()
        responses(bench, first)
        again = TlsClient(bench, context, session=first.tls.session).shake_hands()
        responses(bench, again, 2)
        assert again.tls.session_reused
        assert [each.user for each in bench.processor._selector.channels.values()] == ["CN=alice"] * 2
        changed = replace(bench.config, ssl_truststore_certificates=Authority("Another").pem)
        bench.processor.tls.follow(SimpleNamespace(broker_config=changed, certificate_readings=1, refresh=None))
        fails(bench, TlsClient(bench, context, session=first.tls.session))
        assert "invalid client certificate" in caplog.text


@pytest.mark.parametrize(
    ("settings", "context", "says"),
    [
        ({"ssl_client_auth": "required"}, {}, "has no certificate, and ssl.client.auth is required"),
        (
            {"ssl_client_auth": "required"},
            {"own": Authority("Another").issue()},
            "invalid client certificate: unable to get local issuer certificate; renew it, or add",
        ),
        (
            {"ssl_client_auth": "required"},
            {"own": AUTHORITY.issue(days=(-3, -1))},
            "invalid client certificate: certificate has expired; renew it",
        ),
        (
            {"ssl_client_auth": "required", "ssl_principal_mapping_rules": "RULE:^CN=nobody$/x/"},
            {"own": AUTHORITY.issue("alice")},
            "no match in ssl.principal.mapping.rules for the certificate of 'CN=alice'",
        ),
        (
            {"ssl_enabled_protocols": "TLSv1.3"},
            {"maximum_version": ssl.TLSVersion.TLSv1_2},
            "supports none of the versions in ssl.enabled.protocols (TLSv1.3)",
        ),
        (
            {"ssl_enabled_protocols": "TLSv1.2"},
            {"minimum_version": ssl.TLSVersion.TLSv1_3},
            "supports none of the versions in ssl.enabled.protocols (TLSv1.2)",
        ),
        (
            {"ssl_cipher_suites": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"},
            {"ciphers": "ECDHE-ECDSA-AES128-GCM-SHA256", "maximum_version": ssl.TLSVersion.TLSv1_2},
            "no shared cipher",
        ),
        ({}, {"distrusts": True}, "the client rejects the broker's certificate (unknown issuer)"),
    ],
)
def test_b22_a_handshake_that_fails_leaves_one_line_with_cause_and_remedy(
    settings: dict[str, object], context: dict[str, object], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    own, ciphers = context.pop("own", None), context.pop("ciphers", None)
    distrusts = context.pop("distrusts", False)
    made = client_context(own, **context)
    if ciphers:
        made.set_ciphers(ciphers)
    if distrusts:
        made = ssl.create_default_context(cadata=Authority("Another").pem)
    with tls_bench(**settings) as bench, caplog.at_level(logging.WARNING):
        fails(bench, TlsClient(bench, made))
        assert bench.value("connections_closed", "failed_authentication") == 1
    [line] = [record.getMessage() for record in caplog.records]
    assert says in line
    assert "127.0.0.1" in line


def fails(bench: ProcessorBench, client: TlsClient) -> None:
    """Continue a handshake until the connection is closed."""

    def closed() -> bool:
        try:
            client.plain.send(client.flight())
        except ssl.SSLError:
            client.plain.send(client.alert())
        except OSError:
            assert client.plain.serial in bench.closed()
        return client.plain.serial in bench.closed()

    bench.turn_until(closed, "the connection is closed")


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (frame(1), "a Kafka request without TLS: set security.protocol=SSL"),
        (b"GET / HTTP/1.1\r\n", "an HTTP request"),
        (b"\xff" * 20, "not a TLS handshake"),
    ],
)
def test_users_24_clients_without_tls_are_distinguished(
    bench: ProcessorBench, sent: bytes, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = bench.connect()
    client.send(sent)
    bench.wait_closed(client)
    [line] = [record.getMessage() for record in caplog.records]
    assert says in line


def test_a_client_that_leaves_within_its_handshake_is_no_failure(
    bench: ProcessorBench, caplog: pytest.LogCaptureFixture
) -> None:
    leaving, resetting, silent = TlsClient(bench), TlsClient(bench), bench.connect()
    leaving.plain.send(leaving.flight())
    leaving.plain.sock.close()
    resetting.plain.send(resetting.flight())
    resetting.plain.reset()
    silent.sock.close()
    for client in (leaving.plain, resetting.plain, silent):
        bench.wait_closed(client)
    assert caplog.records == []
    assert bench.value("connections_closed", "client") == 3


def test_plain_listeners_next_to_it_stay_plain(bench: ProcessorBench) -> None:
    client = bench.connect(listener=1)
    client.send(frame(1))
    [request] = bench.requests(1)
    assert request.session == b""
    bench.targets[0].answer(request, b"\0\0\0\4abcd")
    assert client.receive(8) == b"\0\0\0\4abcd"


def test_the_kernel_is_asked_whether_it_encrypts(bench: ProcessorBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without support, as on a machine without the module, files pass through OpenSSL; a plain socket has no keys."""
    monkeypatch.setattr(tls_kernel_transport, "is_offered", lambda: True)
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        responses(bench, TlsClient(bench, client_context(maximum_version=version)).shake_hands())
    for channel in bench.processor._selector.channels.values():
        assert isinstance(channel.tls, tls_kernel_transport.KernelTlsTransport)
        assert channel.tls._kernel_sends == tls_kernel_transport.kernel_encrypts(channel.tls._sock)
    plain, other = socket.socketpair()
    with plain, other:
        assert not tls_kernel_transport.kernel_encrypts(plain)


def test_files_are_sent_by_the_kernel_where_it_encrypts(bench: ProcessorBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no keys here: the received bytes are the plain file, after the TLS records."""
    monkeypatch.setattr(tls_kernel_transport, "is_offered", lambda: True)
    monkeypatch.setattr(tls_kernel_transport, "kernel_encrypts", lambda _sock: True)
    client = TlsClient(bench).shake_hands()
    segment = bench.directory / "segment"
    segment.write_bytes(bytes(range(256)))
    client.send(frame(1))
    [request] = bench.requests(1)
    client.plain.read()
    client.plain.received.clear()
    path, inode = os.fsencode(segment), segment.stat().st_ino
    bench.targets[0].answer_ranges(request, b"", [FileRange(0, path, inode, 100, 50)])
    assert client.plain.receive(50) == bytes(range(100, 150))


def test_b07_a_request_in_very_many_records_is_read_at_once(bench: ProcessorBench) -> None:
    """As from librdkafka, which sends one record per buffer; a turn of the loop for each would cost ten times more."""
    client = TlsClient(bench).shake_hands()
    for number, size in enumerate((500, 70_000)):
        sent = frame(number, os.urandom(size))
        client.plain.send(b"".join(client.records(sent[at : at + 100]) for at in range(0, len(sent), 100)))
        # A large request has its block of memory after the first read.
        bench.run_once(2)
        assert len(bench.targets[0].take()) == 1


def test_requests_before_a_changed_record_are_served(bench: ProcessorBench) -> None:
    """Both are received together: the request is passed on, then the connection ends; no further event would arrive."""
    client = TlsClient(bench).shake_hands()
    changed = bytearray(client.records(frame(1)) + client.records(frame(2)))
    changed[-1] ^= 1
    client.plain.send(bytes(changed))
    [request] = bench.requests(1)
    assert request.payload == frame(1)[4:]
    bench.wait_closed(client.plain)
    assert bench.value("connections_closed", "fault") == 0


def test_b09_a_partly_sent_response_continues_at_its_position(bench: ProcessorBench) -> None:
    """Encrypted records are not encrypted again, with other reads and requests meanwhile; no bytes are sent twice."""
    client = TlsClient(bench, send_buffer=4096).shake_hands()
    expected = b""
    for number in range(60):
        client.send(frame(number))
        [request] = bench.requests(1)
        response = b"\0\0\0\4%04d" % number + os.urandom(20_000 if number % 3 else 200_000)
        bench.targets[0].answer(request, response)
        expected += response
        if number % 7 == 0:
            bench.run_once()
    assert client.receive(len(expected)) == expected
    assert not bench.restless()
