"""A TLS client of a processor bench whose every byte the test sees: the protocol runs in memory."""

import ssl
import tempfile
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rotunda.broker.ipc.listener_table import ListenerEntry
from tests.support.certificates import Authority, Issued
from tests.support.processor_bench import ProcessorBench

AUTHORITY = Authority()
OWN = AUTHORITY.issue()


def tls_bench(**settings: object) -> ProcessorBench:
    """Return a bench whose listener 0 is TLS, and listener 1 plaintext."""
    store = {"ssl_keystore_type": "PEM", "ssl_keystore_key": OWN.key_pem, "ssl_keystore_certificate_chain": OWN.pem}
    trust = {"ssl_truststore_type": "PEM", "ssl_truststore_certificates": AUTHORITY.pem}
    bench = ProcessorBench(listeners="SSL://127.0.0.1:0", **(store | trust | settings))
    tls = bench.processor.tls
    tls.listeners = [ListenerEntry("SSL", "SSL", "", 0), ListenerEntry("PLAINTEXT", "PLAINTEXT", "", 0)]
    tls.clients = bench.reader.clients
    tls.follow(SimpleNamespace(broker_config=bench.config, certificate_readings=0, refresh=never))
    return bench


def client_context(own: Issued | None = None, **attributes: Any) -> ssl.SSLContext:
    """Return the context of a client that trusts the authority; ``own``: the client certificate."""
    context = ssl.create_default_context(cadata=AUTHORITY.pem)
    for name, value in attributes.items():
        setattr(context, name, value)
    if own is not None:
        load_own(context, own)
    return context


def load_own(context: ssl.SSLContext, own: Issued) -> None:
    """Have a client show a certificate."""
    with tempfile.TemporaryDirectory() as directory:
        context.load_cert_chain(own.write(Path(directory), "own"))


def never(*, at_once: bool) -> bool:
    """Replace the callback for settings that do not change."""
    assert at_once
    return False


class TlsClient:
    """One connection. `plain` is the client below TLS."""

    def __init__(
        self,
        bench: ProcessorBench,
        context: ssl.SSLContext | None = None,
        server_name: str | None = "localhost",
        session: ssl.SSLSession | None = None,
        **connect: int,
    ) -> None:
        """``session``: of an earlier connection by the same context, to resume."""
        self.bench = bench
        self.plain = bench.connect(**connect)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = (context or client_context()).wrap_bio(
            self._incoming, self._outgoing, server_hostname=server_name, session=session
        )
        self._received = bytearray()
        self.is_ready = False

    def flight(self) -> bytes:
        """Continue the handshake, and return the bytes to send for it. Raises ssl.SSLError when it fails."""
        self._take()
        with suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
            self.is_ready = True
        return self._outgoing.read()

    def alert(self) -> bytes:
        """Return the bytes to send after a failure."""
        return self._outgoing.read()

    def shake_hands(self) -> "TlsClient":
        """Finish the handshake."""

        def ready() -> bool:
            self.plain.send(self.flight())
            return self.is_ready

        self.bench.turn_until(ready, "the handshake is done")
        return self

    def records(self, data: bytes) -> bytes:
        """Return data as it is sent: in records of 16 KiB."""
        self.tls.write(data)
        return self._outgoing.read()

    def send(self, data: bytes) -> None:
        """Send all of it, turning the loop while the sockets are full."""
        for start in range(0, len(data), 1 << 20):
            self.plain.send(self.records(data[start : start + (1 << 20)]))

    def receive(self, count: int) -> bytes:
        """Turn the loop until so many decrypted bytes are there and remove them from the buffer."""

        def enough() -> bool:
            self._take()
            try:
                while len(self._received) < count:
                    self._received += self.tls.read(65536)
            except ssl.SSLWantReadError:
                return False
            return True

        self.bench.turn_until(enough, f"{count} bytes inside TLS")
        taken = bytes(self._received[:count])
        del self._received[:count]
        return taken

    def _take(self) -> None:
        if data := self.plain.read():
            self._incoming.write(data)
            self.plain.received.clear()
