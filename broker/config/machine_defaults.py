"""Defaults that depend on the machine, and values that depend on where the broker is started."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rotunda.broker.config.keys import Value

#: Name of a data directory below the working directory: used if it exists, and created if there is no home.
LOCAL_DATA = "rotunda-data"


def machine_defaults(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return attribute -> value of the defaults that depend on the machine and its user."""
    cpus = len(os.sched_getaffinity(0))
    return {
        "num_network_threads": min(3, max(1, cpus // 2)),
        "num_io_threads": min(8, max(1, cpus // 2)),
        "log_dirs": (str(_data_dir(environment)),),
    }


def _data_dir(environment: Mapping[str, str]) -> Path:
    """Return where data is unless something else is set (the XDG base directory specification)."""
    local, base = Path(LOCAL_DATA).absolute(), Path(environment.get("XDG_DATA_HOME", ""))
    if local.is_dir():
        return local
    if base.is_absolute():
        return base / "rotunda"
    home = environment.get("HOME")
    return Path(home) / ".local/share/rotunda" if home else local


def absolute(name: str, value: Value) -> Value:
    """Make the names of files absolute once: a broker that becomes a daemon changes its working directory."""
    if name == "log.dirs" and isinstance(value, tuple):
        return tuple(str(Path(entry).absolute()) if entry else "" for entry in value)
    if isinstance(value, str) and value and name.endswith(("ssl.keystore.location", "ssl.truststore.location")):
        return str(Path(value).absolute())
    return value
