"""One Apache Kafka for all tests that need no other settings: a listener for each way of a client to log in.

Alice and Bob have a password for PLAIN, and Alice one for SCRAM. Sessions of SASL_SSL and SASL_PLAINTEXT end soon,
those of PAIR never, those of SHORT end if they were begun by PLAIN.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from ops.benchmarks.kafka import kafka
from ops.compatibility.preparation import QUICK_JAVA
from ops.free_ports import free_ports
from rotunda.broker.client.admin import users
from rotunda.broker.client.network.blocking_client import BlockingClient
from tests.support.certificates import Authority

PASSWORD = "secret"  # noqa: S105 - a planted one
SECURITY = "org.apache.kafka.common.security"
LINES = {
    "plain": f'{SECURITY}.plain.PlainLoginModule required username="admin" password="x" user_admin="x" '
    f'user_alice="{PASSWORD}" user_bob="sesame";',
    "scram-sha-256": f"{SECURITY}.scram.ScramLoginModule required;",
    "scram-sha-512": f"{SECURITY}.scram.ScramLoginModule required;",
    "oauthbearer": f'{SECURITY}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="admin";',
}
#: A session of SASL_SSL or SASL_PLAINTEXT lasts that long.
SESSION_MS = 5000
PROTOCOLS = {
    "PLAINTEXT": "PLAINTEXT",
    "SSL": "SSL",
    "SASL_SSL": "SASL_SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "PAIR": "SASL_PLAINTEXT",
    "SHORT": "SASL_PLAINTEXT",
}


class SharedKafka(NamedTuple):
    """The ports by listener, and the file with the authority that clients trust."""

    ports: dict[str, int]
    trusted: Path

    def address(self, listener: str = "PLAINTEXT") -> str:
        """Return a listener's address."""
        return f"127.0.0.1:{self.ports[listener]}"


def sasl_settings(listener: str, mechanisms: tuple[str, ...], **session_ms: int) -> dict[str, str]:
    """Return the settings of a listener with these mechanisms, and with ends of sessions by mechanism."""
    prefix = f"listener.name.{listener.lower()}."
    settings = {f"{prefix}sasl.enabled.mechanisms": ",".join(mechanisms)}
    for mechanism in map(str.lower, mechanisms):
        settings[f"{prefix}{mechanism}.sasl.jaas.config"] = LINES[mechanism]
    for mechanism, milliseconds in session_ms.items():
        settings[f"{prefix}{mechanism.replace('_', '-')}.connections.max.reauth.ms"] = str(milliseconds)
    return settings


@contextmanager
def shared_kafka(directory: Path) -> Iterator[SharedKafka]:
    """Run it."""
    authority = Authority()
    trusted = directory / "ca.pem"
    trusted.write_text(authority.pem)
    ports = dict(zip((*PROTOCOLS, "CONTROLLER"), free_ports(len(PROTOCOLS) + 1), strict=True))
    every = tuple(each.upper() for each in LINES)
    ends = {mechanism.replace("-", "_"): SESSION_MS for mechanism in LINES}
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{ports['CONTROLLER']}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,"
        + ",".join(f"{name}:{protocol}" for name, protocol in PROTOCOLS.items()),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue().write(directory, "kafka")),
        # Few windows: a quota is used up soon, and soon free again.
        "quota.window.num": "3",
        **sasl_settings("SASL_SSL", every, **ends),
        **sasl_settings("SASL_PLAINTEXT", every, **ends),
        **sasl_settings("PAIR", ("PLAIN", "SCRAM-SHA-256")),
        **sasl_settings("SHORT", ("PLAIN", "SCRAM-SHA-256"), plain=30_000),
    }
    with ExitStack() as started:
        # Few requests are not worth the slower of Java's two compilers.
        with patch.dict(os.environ, QUICK_JAVA):
            started.enter_context(kafka(directory / "kafka", settings))
        made = SharedKafka(ports, trusted)
        with BlockingClient(made.address()) as client:
            users.add(client, "alice", PASSWORD, ["SCRAM-SHA-256", "SCRAM-SHA-512"], 4096)
        yield made
