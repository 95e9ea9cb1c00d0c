"""A server of token signing keys, over HTTP or HTTPS, with responses set by a test."""

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import jwt
from cryptography.hazmat.primitives.asymmetric import ec


def key_set(**keys: ec.EllipticCurvePrivateKey) -> str:
    """Return a JSON Web Key Set with the public keys, by their ids."""
    to_jwk = jwt.algorithms.ECAlgorithm.to_jwk
    return json.dumps({"keys": [{**json.loads(to_jwk(key.public_key())), "kid": name} for name, key in keys.items()]})


class KeyServer:
    """Responds to every request with `status`, `headers` and `body`; closes the connection if `status` is None."""

    def __init__(self, body: str, certificate: Path | None = None) -> None:
        """``certificate``: a file with a private key and a certificate, for HTTPS."""
        self.status: int | None = 200
        self.headers: dict[str, str] = {}
        self.body = body
        #: The certificate file that HTTPS clients must trust.
        self.trusted = certificate
        #: How many requests have arrived.
        self.asked = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked += 1
                if outer.status is None:
                    self.connection.close()
                    return
                self.send_response(outer.status)
                for name, value in outer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(outer.body.encode())

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: Any) -> None:
                """Clients hang up when they do not trust the certificate."""

        self._server = Server(("127.0.0.1", 0), Handler)
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if certificate is None else "https"
        self.url = f"{scheme}://localhost:{self._server.server_address[1]}/keys"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
