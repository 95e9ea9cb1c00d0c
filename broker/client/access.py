"""Client security: TLS and SASL settings from client properties, by Java's and librdkafka's names.

Used by the commands and by `Producer`. Passwords must never appear in error messages or in the repr of an object.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rotunda.broker.client.sasl import MECHANISMS
from rotunda.broker.config.properties_file import parse_properties
from rotunda.broker.errors import ConfigError, UsageError
from rotunda.broker.security.tls.listener_tls import Store

#: Properties that must not be shown to others.
SECRETS = frozenset(
    {
        *("sasl.jaas.config", "sasl.password", "ssl.key.password", "ssl.keystore.key", "ssl.keystore.password"),
        "ssl.truststore.password",
    }
)

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

#: librdkafka's names, where Java's differ.
_OTHER_NAMES = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
}
_NAMES = frozenset({"security.protocol", "enable.ssl.certificate.verification"})
_OPTION = re.compile(r'([A-Za-z0-9_.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))')
_FILE_URL = "file:"
_TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - the name of a setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """A client's security settings; `context` is set for TLS protocols."""

    bootstrap: str = ""
    protocol: str = "PLAINTEXT"
    context: ssl.SSLContext | None = field(default=None, repr=False)
    has_certificate: bool = False
    mechanism: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    #: Location of a new token after the first expires.
    token_url: str = ""

    @property
    def is_encrypted(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def authenticates(self) -> bool:
        return self.protocol.startswith("SASL_")

    def current_token(self) -> str:
        """Return the OAUTHBEARER token from its file. Raises UsageError."""
        return _token(self.token_url) if self.token_url else self.token


PLAIN_TEXT = Access()


def is_of_access(name: str) -> bool:
    """Return whether a property, by any of its names, is a security setting."""
    return name in _NAMES or name.startswith(("ssl.", "sasl."))


def read_properties(file: Path) -> dict[str, str]:
    """Read a client's properties file. Raises UsageError."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        raise UsageError(f"cannot read the client's properties {file}: {failure}") from failure
    return {name: value for name, value, _ in parse_properties(text)}


def access_of(properties: Mapping[str, str]) -> Access:
    """Parse security properties. Raises UsageError with the property and a remedy."""
    named = {_OTHER_NAMES.get(name, name): value.strip() for name, value in properties.items()}
    if "ssl.ca.location" in properties or "ssl.ca.pem" in properties:
        named.setdefault("ssl.truststore.type", "PEM")
    protocol = named.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise UsageError(f"security.protocol={protocol} is none of {', '.join(PROTOCOLS)}")
    mechanism, user, password, token = _sasl(named) if protocol.startswith("SASL_") else ("", "", "", "")
    context, has_certificate = _context(named) if protocol.endswith("SSL") else (None, False)
    return Access(
        bootstrap=named.get("bootstrap.servers", ""),
        protocol=protocol,
        context=context,
        has_certificate=has_certificate,
        mechanism=mechanism,
        user=user,
        password=password,
        token=token,
        token_url=named.get(_TOKEN_URL, "") if token else "",
    )


def _sasl(named: Mapping[str, str]) -> tuple[str, str, str, str]:
    """Return mechanism, user, password and token."""
    mechanism = named.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in MECHANISMS:
        default = "" if "sasl.mechanism" in named else ", which is the default,"
        raise UsageError(f"sasl.mechanism={mechanism}{default} is not known here: set one of {', '.join(MECHANISMS)}")
    options = {
        name: (quoted or bare).replace('\\"', '"').replace("\\\\", "\\")
        for name, quoted, bare in _OPTION.findall(named.get("sasl.jaas.config", ""))
    }
    if mechanism == "OAUTHBEARER":
        return mechanism, "", "", _token(named.get(_TOKEN_URL, ""))
    user = named.get("sasl.username") or options.get("username", "")
    password = named.get("sasl.password") or options.get("password", "")
    if not user or not password:
        raise UsageError(
            f"{mechanism} needs a user and a password: set sasl.username and sasl.password, or sasl.jaas.config with "
            'username="..." password="...";'
        )
    return mechanism, user, password, ""


def _token(url: str) -> str:
    if url.startswith(_FILE_URL):
        path = Path("/" + url.removeprefix(_FILE_URL).lstrip("/"))
        try:
            return path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as failure:
            raise UsageError(f"{_TOKEN_URL}={url}: {failure}") from failure
    raise UsageError(f"OAUTHBEARER needs a token: put it into a file and set {_TOKEN_URL}=file:///FILE")


def _context(named: Mapping[str, str]) -> tuple[ssl.SSLContext, bool]:
    """Return the TLS context, and whether it has a client certificate."""
    # Imported only for TLS clients.
    from rotunda.broker.security.tls.contexts import load_key  # noqa: PLC0415
    from rotunda.broker.security.tls.stores import read_keystore, read_truststore  # noqa: PLC0415

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = named.get("ssl.endpoint.identification.algorithm", "https").lower() not in ("", "none")
    if named.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    keystore = _keystore(named)
    try:
        trusted = read_truststore(_truststore(named))
        if trusted is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(cadata=b"\n".join(trusted).decode())
        if keystore is not None:
            load_key(context, read_keystore(keystore))
    except (ConfigError, ssl.SSLError) as failure:
        raise UsageError(f"the client's properties: {failure}") from failure
    return context, keystore is not None


def _truststore(named: Mapping[str, str]) -> Store:
    location, certificates = named.get("ssl.truststore.location"), named.get("ssl.truststore.certificates")
    kind = named.get("ssl.truststore.type", "JKS").upper()
    return Store("ssl.truststore", kind, location, named.get("ssl.truststore.password"), certificates)


def _keystore(named: Mapping[str, str]) -> Store | None:
    """Return the client's certificate store; None if there is none."""
    password = named.get("ssl.key.password")
    certificate = named.get("ssl.certificate.location")
    if certificate:
        chain = _read("ssl.certificate.location", certificate)
        own_key = _read("ssl.key.location", named.get("ssl.key.location", certificate))
        return Store("ssl.certificate", "PEM", None, None, chain, own_key, password)
    location, key = named.get("ssl.keystore.location"), named.get("ssl.keystore.key")
    if not location and not key:
        return None
    kind, inline = named.get("ssl.keystore.type", "JKS").upper(), named.get("ssl.keystore.certificate.chain")
    return Store("ssl.keystore", kind, location, named.get("ssl.keystore.password"), inline, key, password)


def _read(name: str, file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        raise UsageError(f"{name}={file} cannot be read: {failure}") from failure
