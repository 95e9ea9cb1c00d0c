"""`rotunda tls init`: certificates for development, and the settings of broker and clients for them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from rotunda.broker.cli.cluster.client_snippets import Access, snippets
from rotunda.broker.cli.config import check_address
from rotunda.broker.clock import SystemClock
from rotunda.broker.errors import RotundaError, UsageError
from rotunda.broker.security.development_ca import (
    CA_CERTIFICATE,
    CA_KEY,
    SERVER,
    DevelopmentCa,
    client_file,
    host_names,
)

_PORT = 9093


def run(parsed: argparse.Namespace, _: Mapping[str, str]) -> int:
    """Run one action. Raises UsageError."""
    return _init(parsed) if parsed.action == "init" else _clients(parsed)


def _clients(parsed: argparse.Namespace) -> int:
    directory = parsed.dir.absolute()
    client = directory / client_file(parsed.client) if parsed.client is not None else None
    for file in (directory / CA_CERTIFICATE, client):
        if file is not None and not file.exists():
            raise UsageError(f"missing {file}; `rotunda tls init` creates it")
    for each in parsed.bootstrap.split(","):
        check_address(each, "--bootstrap")
    texts = snippets(Access(parsed.bootstrap, directory / CA_CERTIFICATE, client, parsed.user))
    print(json.dumps(texts, indent=1) if parsed.json else _listed(texts))
    return 0


def _listed(texts: Mapping[str, str]) -> str:
    return "\n".join(f"# {name}\n{text}" for name, text in texts.items())


def _init(parsed: argparse.Namespace) -> int:
    """Make the missing files and print their use. Raises UsageError when nothing is missing."""
    hosts = host_names(parsed.hosts)
    directory = parsed.dir.absolute()
    client = directory / client_file(parsed.client) if parsed.client is not None else None
    _check_missing(directory, client, parsed.hosts)
    authority = DevelopmentCa(directory, datetime.fromtimestamp(SystemClock().wall_ms() / 1000, UTC))
    try:
        if not (directory / SERVER).exists():
            authority.issue_server(hosts)
        if client is not None:
            authority.issue_client(parsed.client)
    except FileExistsError as failure:
        raise RotundaError(
            f"{failure.filename2 or failure.filename} was created meanwhile and is not replaced"
        ) from failure
    except OSError as failure:
        raise RotundaError(f"{directory} cannot be written: {failure.strerror}") from failure
    _print(parsed, directory, client)
    return 0


def _check_missing(directory: Path, client: Path | None, hosts: list[str]) -> None:
    server = directory / SERVER
    if client is not None and client.exists():
        raise UsageError(f"{client} exists and is not replaced; remove it, or choose another name")
    if server.exists() and client is None:
        raise UsageError(
            f"{server} exists and is not replaced: remove it for another one of the same CA, name another --dir for "
            "another CA, or add --client NAME for a client's certificate"
        )
    if server.exists() and hosts:
        raise UsageError(f"{server} exists, --host would not change it: remove it for one with other names")


def _print(parsed: argparse.Namespace, directory: Path, client: Path | None) -> None:
    from cryptography import x509  # noqa: PLC0415 - what it costs is paid after what is wrong has been said

    server = directory / SERVER
    # The first certificate of the file is the server's; its key precedes it.
    certificate = x509.load_pem_x509_certificate(server.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    listed = [str(each.value) for each in names]
    # Without a further name the broker listens on this machine alone.
    host = _in_address(parsed.hosts[0]) if parsed.hosts and client is not None else None
    settings = _settings(directory, client is not None, host)
    access = Access(f"{host or 'localhost'}:{_PORT}", directory / CA_CERTIFICATE, client)
    texts = snippets(access)
    expires = certificate.not_valid_after_utc
    if parsed.json:
        files = {"ca": CA_CERTIFICATE, "ca_key": CA_KEY, "server": SERVER, "client": client.name if client else None}
        facts = {
            "directory": str(directory),
            "files": {name: str(directory / file) if file else None for name, file in files.items()},
            "names": listed,
            "expires": expires.isoformat(),
            "settings": settings,
            "clients": texts,
        }
        print(json.dumps(facts, indent=1))
        return
    print(f"{directory}: {CA_CERTIFICATE} for clients, {SERVER} for the broker until {expires:%Y-%m-%d}; keep {CA_KEY}")
    print(f"names: {', '.join(listed)}")
    print("\n# the broker's configuration file")
    if client is None:
        print("# encrypted, not authenticated: for other machines add --client NAME, or use SASL_SSL with users")
    for name, value in settings.items():
        print(f"{name}={value}")
    print(f"\n{_listed(texts)}", end="")


def _in_address(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _settings(directory: Path, with_clients: bool, host: str | None) -> dict[str, str]:
    """Return a broker's settings. Other machines reach it only if clients authenticate with certificates."""
    is_reached = with_clients and host is not None
    everywhere = "0.0.0.0"  # noqa: S104 - text, not bound
    settings = {"listeners": f"SSL://{everywhere if is_reached else '127.0.0.1'}:{_PORT}"}
    if is_reached:
        settings["advertised.listeners"] = f"SSL://{host}:{_PORT}"
    settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(directory / SERVER)}
    if with_clients:
        settings |= {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(directory / CA_CERTIFICATE),
            "ssl.client.auth": "required",
        }
    return settings
