"""`rotunda check-config`, and the conversion of command-line flags to a configuration."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rotunda.broker.cli.advertise import advertised_listeners
from rotunda.broker.cli.process_list import hide
from rotunda.broker.config.broker_config import find_key, load
from rotunda.broker.config.notes import start_notes
from rotunda.broker.config.sources import KAFKA_PREFIX, OWN_PREFIX, property_of
from rotunda.broker.errors import UsageError
from rotunda.broker.security.tls.checks import check_tls

if TYPE_CHECKING:
    from rotunda.broker.config.broker_config import BrokerConfig

_HIGHEST_PORT = 65535
_VARIABLES = (KAFKA_PREFIX, OWN_PREFIX)
_FOR_OTHERS = 0o077


def configuration(parsed: argparse.Namespace, environment: Mapping[str, str]) -> BrokerConfig:
    """Return the configuration from flags, environment and file. Raises ConfigError, UsageError."""
    if parsed.ephemeral and parsed.data_dir:
        raise UsageError("--ephemeral and --data-dir exclude each other")
    hide(lambda name: is_secret(name) or (name.startswith(_VARIABLES) and is_secret(property_of(name))))
    sets = {key: read_value(key, value, "--set") for key, value in (assignment(text, "--set") for text in parsed.sets)}
    data_dir = parsed.data_dir or environment.get("ROTUNDA_DATA_DIR")
    if data_dir:
        sets["log.dirs"] = data_dir
    if parsed.listen:
        if "://" not in parsed.listen:
            check_address(parsed.listen, "--listen")
        sets["listeners"] = parsed.listen if "://" in parsed.listen else f"PLAINTEXT://{parsed.listen}"
    if parsed.ephemeral:
        sets["ephemeral"] = "true"
    named = parsed.config or environment.get("ROTUNDA_CONFIG")
    file = Path(named) if named else None
    if parsed.advertise:
        if "advertised.listeners" in sets:
            raise UsageError("--advertise and --set advertised.listeners exclude each other")
        # Whether they may be opened depends on the advertised addresses; only their names matter here.
        asked = {**sets, "advertised.listeners": "", "insecure.listen": "true"}
        sets["advertised.listeners"] = advertised_listeners(
            parsed.advertise, load(file, asked, environment).wanted_listeners
        )
    return load(file, sets, environment)


def is_secret(name: str) -> bool:
    """Return whether a name is of a setting with a secret value."""
    key = find_key(name)
    return key is not None and key.sensitive


def read_value(key: str, value: str, flag: str) -> str:
    """Return the value that a flag assigns; for a password given as @FILE, the file's content. Raises UsageError."""
    if not value.startswith("@") or not is_secret(key):
        return value
    path = Path(value[1:])
    try:
        text = path.read_text(encoding="utf-8")
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as failure:
        raise UsageError(f"{flag} {key}=@{path}: {failure}") from failure
    # Certificates are public.
    if mode & _FOR_OTHERS and not text.lstrip().startswith("-----BEGIN CERTIFICATE-----"):
        raise UsageError(f"{flag} {key}=@{path}: other users may read or write it; chmod 600 {path}")
    return text.strip()


def assignment(text: str, flag: str) -> tuple[str, str]:
    """Return the key and value of `key=value`. Raises UsageError."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise UsageError(f"{flag} {text}: expected KEY=VALUE")
    return key.strip(), value.strip()


def check_address(text: str, flag: str) -> None:
    """Raise UsageError unless the text is host:port."""
    host, _, port = text.rpartition(":")
    if not (host and port.isdecimal() and int(port) <= _HIGHEST_PORT):
        raise UsageError(f"{flag} {text}: expected HOST:PORT")


def check(parsed: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Load the configuration. Raises its errors."""
    config = configuration(parsed, environment)
    check_tls(config)
    print("the configuration is valid")
    for note in start_notes(config):
        print(note)
    return 0
