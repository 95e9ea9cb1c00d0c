"""`rotunda start --secure`: TLS, SCRAM and a first user, whose password is printed once.

Certificates are stored in the data directory, below `tls`, and the user with the metadata, so that the next start has
the same. The user is a super user, and commands on this machine authenticate as it by `tls/client.properties`. It is
created in the broker's first process before any other runs, and its password is printed after that; a kill in between
leaves a user with an unknown password, and `--new-password` sets another.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import re
import tempfile
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rotunda.broker.cli.cluster.client_snippets import Access, java_properties
from rotunda.broker.cli.config import assignment, check_address, configuration
from rotunda.broker.cli.options.users import DEFAULT_ITERATIONS
from rotunda.broker.clock import SystemClock
from rotunda.broker.config.settings.authorization import STANDARD_AUTHORIZER
from rotunda.broker.config.settings.sasl import SCRAM_SHA_256, SCRAM_SHA_512
from rotunda.broker.config.sources import Source
from rotunda.broker.errors import UsageError
from rotunda.broker.metadata.security.offline_users import store_user, stored_users
from rotunda.broker.security.sasl.scram_credential import new_password
from rotunda.broker.security.sasl.user_credentials import SECRET_NAME

if TYPE_CHECKING:
    from rotunda.broker.config.broker_config import BrokerConfig

USER = "admin"
_DIRECTORY = "tls"
_MECHANISMS = (SCRAM_SHA_512, SCRAM_SHA_256)
_DEFAULT_ADDRESS = "127.0.0.1:9092"
_SUPER_USERS = "super.users"
_LOCATION = "ssl.keystore.location"
_EVERYWHERE = {"", "0.0.0.0", "::"}  # noqa: S104 - recognised, not bound


class SecureStart:
    """The settings and files of a secured broker. Raises UsageError, ConfigError, RotundaError."""

    def __init__(self, parsed: argparse.Namespace, environment: Mapping[str, str]) -> None:
        if parsed.ephemeral:
            raise UsageError("--secure stores certificates and users in the data directory: it excludes --ephemeral")
        if parsed.listen and "://" in parsed.listen:
            raise UsageError(f"--listen {parsed.listen}: with --secure it is HOST:PORT, the protocol is SASL_SSL")
        settings = {
            "sasl.enabled.mechanisms": ",".join(_MECHANISMS),
            "ssl.keystore.type": "PEM",
            "status.ssl.enable": "true",
        }
        if parsed.listen or "listeners" not in configuration(_with_sets(parsed, settings), environment).layers:
            address = parsed.listen or _DEFAULT_ADDRESS
            check_address(address, "--listen")
            settings["listeners"] = f"SASL_SSL://{address}"
        # The path of the certificates depends on the data directory.
        before = configuration(_with_sets(parsed, settings), environment)
        _check_alone(parsed, before, (*settings, _LOCATION))
        for listener in before.bound_listeners:
            if listener.protocol != "SASL_SSL":
                raise UsageError(f"--secure: listener {listener.name} has protocol {listener.protocol}, not SASL_SSL")
        if not before.authorizer_class_name:
            settings["authorizer.class.name"] = STANDARD_AUTHORIZER
        self._data_dir = before.data_dir
        self.directory = self._data_dir / _DIRECTORY
        self._client_properties = self.directory / "client.properties"
        self._is_renewed = bool(parsed.new_password)
        #: The user's password, while it is to be printed.
        self.password: str | None = None
        self._make_certificates(before)
        settings[_LOCATION] = str(self.directory / "server.pem")
        settings[_SUPER_USERS] = ";".join(filter(None, (before.super_users, f"User:{USER}")))
        config = configuration(_with_sets(parsed, settings), environment)
        self.config = dataclasses.replace(config, client_properties=str(self._client_properties))

    def make_user(self) -> None:
        """Create the first user, or set a new password if requested. In the broker's first process."""
        if not self._is_renewed and stored_users(self._data_dir).keys() - {SECRET_NAME}:
            return
        self.password = new_password()
        store_user(self._data_dir, USER, self.password, _MECHANISMS, DEFAULT_ITERATIONS)

    def write_client_properties(self, bootstrap: str) -> None:
        """Write the first user's properties for Kafka's tools and our own; an earlier password is kept."""
        if self.password is None:
            if self._client_properties.exists():
                text = self._client_properties.read_text(encoding="utf-8")
                replaced = re.sub(r"(?m)^bootstrap\.servers=.*$", f"bootstrap.servers={bootstrap}", text)
                _write_private(self._client_properties, replaced)
            return
        access = Access(bootstrap, self.directory / "ca.pem", user=USER)
        _write_private(self._client_properties, java_properties(access).replace('"PASSWORD"', f'"{self.password}"'))

    @property
    def facts(self) -> dict[str, str]:
        """Additional facts of the ready line."""
        found = {"ca": str(self.directory / "ca.pem"), "client_properties": str(self._client_properties)}
        return found if self.password is None else {**found, "user": USER, "password": self.password}

    def lines(self, bootstrap: str) -> list[str]:
        """Return the lines printed below the ready line."""
        command = f"rotunda tls clients --dir {self.directory} --bootstrap {bootstrap} --user {USER}"
        below = [f"settings for clients: {command}"]
        if self.password is not None:
            below.insert(0, f"user {USER} has the password {self.password} (also in {self._client_properties})")
        return below

    def _make_certificates(self, config: BrokerConfig) -> None:
        from rotunda.broker.security.development_ca import SERVER, DevelopmentCa, host_names  # noqa: PLC0415 - costs 50 ms

        if (self.directory / SERVER).exists():
            return
        named = {each.host for each in (*config.bound_listeners, *config.effective_advertised_listeners)}
        self._data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority = DevelopmentCa(self.directory, datetime.fromtimestamp(SystemClock().wall_ms() / 1000, UTC))
        authority.issue_server(host_names(sorted(named - _EVERYWHERE)))


def _write_private(path: Path, text: str) -> None:
    """Replace a file that only its owner may read."""
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with open(fd, "w", encoding="utf-8") as file:
        file.write(text)
    Path(name).replace(path)


def _with_sets(parsed: argparse.Namespace, settings: Mapping[str, str]) -> argparse.Namespace:
    """Return the flags with these settings added to --set."""
    secured = copy.copy(parsed)
    secured.listen = None
    secured.sets = [*parsed.sets, *(f"{name}={value}" for name, value in settings.items())]
    return secured


def _check_alone(parsed: argparse.Namespace, config: BrokerConfig, names: Iterable[str]) -> None:
    """Raise UsageError if a setting of --secure is also set elsewhere."""
    given = {assignment(text, "--set")[0] for text in parsed.sets}
    for name in names:
        others = [str(layer.origin) for layer in config.layers.get(name, ()) if layer.origin.source != Source.FLAG]
        others += ["--set"] if name in given else []
        if others:
            raise UsageError(f"--secure sets {name} itself, and {others[0]} does too: leave one of them out")
