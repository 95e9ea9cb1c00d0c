"""A broker with a TLS listener and a plaintext one, and the settings of its clients."""

import socket
import ssl
from pathlib import Path

from cryptography import x509

from tests.support.broker_process import BrokerProcess
from tests.support.certificates import Authority, Issued


class SecuredBroker:
    """The broker is `process`; its keystore is a file that may be replaced."""

    def __init__(self, directory: Path, settings: dict[str, object] | None = None) -> None:
        self.authority = Authority()
        self.directory = directory
        self.trusted = directory / "ca.pem"
        self.trusted.write_text(self.authority.pem)
        self.certificate = self.authority.issue()
        tls = {
            "listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.certificate.write(directory, "broker"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.trusted,
        }
        self.process = BrokerProcess(directory, {**tls, **(settings or {})})

    def replace_certificate(self) -> Issued:
        """Put another certificate into the keystore's file, and return it."""
        self.certificate = self.authority.issue()
        self.certificate.write(self.directory, "broker")
        return self.certificate

    @property
    def address(self) -> tuple[str, int]:
        """Where TLS is spoken."""
        return "127.0.0.1", self.process.port

    @property
    def bootstrap(self) -> str:
        """The same for clients."""
        return self.process.bootstrap

    @property
    def plain_bootstrap(self) -> str:
        """Where it is not."""
        return str(self.process.status()["bootstrap"].split(",")[1])

    @property
    def librdkafka(self) -> dict[str, str]:
        """The settings of a client of librdkafka."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.trusted),
        }

    def context(self) -> ssl.SSLContext:
        """Return the SSL context for other Python clients."""
        return ssl.create_default_context(cafile=str(self.trusted))

    def connect(self) -> ssl.SSLSocket:
        """Return a connection that is ready."""
        return self.context().wrap_socket(socket.create_connection(self.address, 60), server_hostname="localhost")

    def shown_serial(self) -> int:
        """Return the serial number of the certificate that a new connection is shown."""
        with self.connect() as connection:
            der = connection.getpeercert(binary_form=True)
        assert der is not None
        return x509.load_der_x509_certificate(der).serial_number
