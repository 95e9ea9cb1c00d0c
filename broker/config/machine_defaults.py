"""Defaults that depend on the machine, and values that depend on where the broker is started."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from broker.config.keys import Value


def machine_defaults(log_dirs: Value) -> dict[str, Any]:
    """Return attribute -> value of the defaults that depend on the machine; ``log_dirs`` is the relative one."""
    cpus = len(os.sched_getaffinity(0))
    return {
        "num_network_threads": min(3, max(1, cpus // 2)),
        "num_io_threads": min(8, max(1, cpus // 2)),
        "log_dirs": absolute("log.dirs", log_dirs),
    }


def absolute(name: str, value: Value) -> Value:
    """Make the names of files absolute once: a broker that becomes a daemon changes its working directory."""
    if name == "log.dirs" and isinstance(value, tuple):
        return tuple(str(Path(entry).absolute()) if entry else "" for entry in value)
    if isinstance(value, str) and value and name.endswith(("ssl.keystore.location", "ssl.truststore.location")):
        return str(Path(value).absolute())
    return value
