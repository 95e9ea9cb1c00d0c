"""A broker that speaks SASL, with and without TLS, with one user for each mechanism, and a key that signs tokens."""

import subprocess
import time
from pathlib import Path

import jwt
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.broker_process import BrokerProcess
from tests.support.certificates import Authority
from tests.support.deadline import deadline_s
from tests.support.key_server import key_set

KEY = ec.generate_private_key(ec.SECP256R1())
PASSWORD = "alice's, secret=x"  # noqa: S105 - a planted one
SCRAM_MECHANISMS = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PROTOCOLS = ("SASL_SSL", "SASL_PLAINTEXT")
PLAIN_LINE = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{PASSWORD}";'


def token(
    lifetime_s: int = 300, audience: str = "rotunda", key: ec.EllipticCurvePrivateKey = KEY, key_id: str = "k"
) -> str:
    """Return a token of alice's."""
    now = int(time.time())
    said = {"sub": "alice", "aud": audience, "iat": now, "exp": now + lifetime_s}
    return jwt.encode(said, key, "ES256", {"kid": key_id})


def set_password(admin: AdminClient, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> None:
    """Store the credential of a user."""
    info = ScramCredentialInfo(SCRAM_MECHANISMS[mechanism], 4096)
    upsertion = UserScramCredentialUpsertion(user, info, password.encode())
    admin.alter_user_scram_credentials([upsertion])[user].result(deadline_s())


class SaslBroker:
    """A broker with listeners of both kinds, one user, and a key that signs tokens."""

    def __init__(
        self, directory: Path, extra: dict[str, object] | None = None, environment: dict[str, str] | None = None
    ) -> None:
        authority = Authority()
        self.trusted = directory / "ca.pem"
        self.trusted.write_text(authority.pem)
        keys = directory / "jwks.json"
        keys.write_text(key_set(k=KEY))
        settings = {
            "listeners": "SASL_SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": authority.issue().write(directory, "broker"),
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.sasl_ssl.plain.sasl.jaas.config": PLAIN_LINE,
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_LINE,
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "sasl.oauthbearer.expected.audience": "rotunda",
        }
        self.process = BrokerProcess(directory, {**settings, **(extra or {})}, environment=environment).start()
        addresses = self.process.status()["bootstrap"].split(",")
        self.addresses = dict(zip((*PROTOCOLS, "PLAINTEXT"), addresses, strict=True))
        self._make_users()

    def records(self, topic: str) -> int:
        """Return how many records a topic has."""
        command = ["kcat", "-b", self.addresses["PLAINTEXT"], "-C", "-t", topic, "-o", "beginning", "-e", "-q"]
        return len(
            subprocess.run(
                command, capture_output=True, text=True, timeout=deadline_s(), check=False
            ).stdout.splitlines()
        )

    def _make_users(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.addresses["PLAINTEXT"]})
        for mechanism in SCRAM_MECHANISMS:
            set_password(admin, "alice", PASSWORD, mechanism)
