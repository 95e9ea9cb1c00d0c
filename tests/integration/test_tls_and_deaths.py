"""SIGKILL between any two steps of a handshake: TLS 1.2 and 1.3, SASL over it, and the first request.

There is a client at each step when a process is killed, so one death covers all of them: clients with the password,
clients without, and clients that skip steps afterwards.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext, suppress
from typing import Any, Self

import psutil
import pytest

from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from tests.support.deadline import deadline_s, wait_until
from tests.support.sasl_broker import PASSWORD, SaslBroker
from tests.support.scram_client import ScramClient

MECHANISM = "SCRAM-SHA-256"
SASL_AUTHENTICATION_FAILED = 58
#: Until this step the connection may not have reached a processor, or the next one may find its first bytes.
EARLY = ("connected", "hello sent")
TLS = {"TLS 1.2": ssl.TLSVersion.TLSv1_2, "TLS 1.3": ssl.TLSVersion.TLSv1_3}
FLIGHTS = {
    "TLS 1.2": ("hello sent", "hello read", "Finished sent", "Finished read"),
    "TLS 1.3": ("hello sent", "hello read", "Finished sent"),
}
QUESTIONS = ("versions", "mechanism", "first token", "last token", "metadata")
STEPS = {
    version: ("connected", *flights, *(f"{each} {what}" for each in QUESTIONS for what in ("sent", "answered")))
    for version, flights in FLIGHTS.items()
}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    limits = {"connection.handshake.timeout.ms": 60_000, "authentication.timeout.ms": 60_000}
    broker = SaslBroker(tmp_path_factory.mktemp("deaths"), {"num.network.threads": 1, "num.io.threads": 1, **limits})
    yield broker
    broker.process.stop()


class Client:
    """One connection that runs its steps one by one."""

    def __init__(self, broker: SaslBroker, version: str, password: str = PASSWORD) -> None:
        host, port = broker.addresses["SASL_SSL"].rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), deadline_s())
        context = ssl.create_default_context(cafile=str(broker.trusted))
        context.minimum_version = context.maximum_version = TLS[version]
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._scram = ScramClient(MECHANISM, "alice", password)
        self._received = b""
        self._steps = zip(STEPS[version], self._walk(), strict=True)
        self.version = version
        self.step = ""
        #: The response to the last request.
        self.answer: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def go_to(self, step: str) -> Client:
        """Run the steps up to this one. Raises OSError when the connection has ended."""
        while self.step != step:
            self.step, _ = next(self._steps)
        return self

    def finish(self) -> None:
        """Run all remaining steps. Raises OSError when the connection has ended."""
        self.go_to(STEPS[self.version][-1])

    def intrude(self) -> Any:
        """Send a request before authentication; return the response, None if the connection ends without one."""
        flights = FLIGHTS[self.version]
        if self.step == "connected" or self.step in flights:
            self.go_to(flights[-1])
        elif self.step.endswith("sent"):
            self.go_to(self.step.replace("sent", "answered"))
        self._send(ApiKey.METADATA, 1, topics=[])
        try:
            response = self._read(ApiKey.METADATA, 1)
        except OSError:
            return None
        assert self.has_ended()
        return response

    def has_ended(self) -> bool:
        """Read the remaining bytes, to the end of the connection."""
        try:
            while self._socket.recv(65536):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True

    def _walk(self) -> Iterator[None]:
        yield
        is_done = self._shake_hands()
        while True:
            if self._outgoing.pending:
                self._socket.sendall(self._outgoing.read())
                yield
            if is_done:
                break
            while not (is_done or self._outgoing.pending):
                self._receive()
                is_done = self._shake_hands()
            yield
        yield from self._ask(ApiKey.API_VERSIONS, 0)
        yield from self._ask(ApiKey.SASL_HANDSHAKE, 1, mechanism=MECHANISM)
        yield from self._ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=self._scram.first())
        yield from self._ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=self._scram.last(bytes(self.answer.auth_bytes)))
        if not int(self.answer.error_code):
            self._scram.check(bytes(self.answer.auth_bytes))
        yield from self._ask(ApiKey.METADATA, 1, topics=[])

    def _shake_hands(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def _ask(self, key: ApiKey, version: int, **fields: Any) -> Iterator[None]:
        self._send(key, version, **fields)
        yield
        self.answer = self._read(key, version)
        yield

    def _send(self, key: ApiKey, version: int, **fields: Any) -> None:
        self._tls.write(codec.encode_request(key, version, 1, "steps", fields))
        self._socket.sendall(self._outgoing.read())

    def _read(self, key: ApiKey, version: int) -> Any:
        (size,) = struct.unpack(">i", self._take(4))
        return codec.decode_response(key, version, self._take(size), 0, size)

    def _take(self, size: int) -> bytes:
        while len(self._received) < size:
            try:
                more = self._tls.read(65536)
            except ssl.SSLWantReadError:
                self._receive()
                continue
            if not more:
                raise ConnectionError("closed inside TLS")
            self._received += more
        taken, self._received = self._received[:size], self._received[size:]
        return taken

    def _receive(self) -> None:
        data = self._socket.recv(65536)
        if not data:
            raise ConnectionError("closed")
        self._incoming.write(data)


def steps_to(last: str) -> list[str]:
    """Return the steps of TLS 1.3 up to one."""
    return list(STEPS["TLS 1.3"][: STEPS["TLS 1.3"].index(last) + 1])


def sockets_left(broker: SaslBroker) -> list[str]:
    """Return the connections of clients that any process of the broker holds."""
    ports = {int(each.rsplit(":", 1)[1]) for each in broker.addresses.values()}
    return [
        f"{pid}: {each.laddr.port} {each.status}"
        for pid in broker.process.child_pids()
        for each in psutil.Process(pid).net_connections("tcp")
        if each.laddr.port in ports and each.status != psutil.CONN_LISTEN
    ]


@pytest.mark.parametrize("role", ["processor", "handler", "controller"])
def test_a_death_between_any_two_steps(secured: SaslBroker, role: str) -> None:
    """Of handlers and the controller no client learns; without its processor it is closed, and begins again."""
    with ExitStack() as stack:

        def at(version: str, step: str, password: str = PASSWORD) -> Client:
            return stack.enter_context(Client(secured, version, password)).go_to(step)

        right = [at(version, step) for version in TLS for step in STEPS[version]]
        wrong = [at("TLS 1.3", step, "wrong") for step in steps_to("last token sent")]
        intruders = [at("TLS 1.3", step) for step in steps_to("first token answered")]
        secured.process.kill(role)
        if role == "processor":
            everybody = [*right, *wrong, *intruders]
            right, wrong, intruders = (
                [each for each in some if each.step in EARLY] for some in (right, wrong, intruders)
            )
            for client in everybody:
                assert client.step in EARLY or client.has_ended(), client.step
        may_end = suppress(OSError) if role == "processor" else nullcontext()
        for client in right:
            step = client.step
            with may_end:
                client.finish()
                assert client.answer.brokers, step
        for client in wrong:
            step = client.step
            with may_end:
                client.go_to("last token answered")
                assert int(client.answer.error_code) == SASL_AUTHENTICATION_FAILED, step
                assert client.has_ended(), step
        for client in intruders:
            step = client.step
            with may_end:
                told = client.intrude()
                assert told is None or not told.brokers, step
        for version in TLS:
            at(version, STEPS[version][-1])
    wait_until(lambda: not sockets_left(secured), f"no connection left, of {sockets_left(secured)}")
