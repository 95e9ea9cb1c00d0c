"""`rotunda print-unit`: prints a systemd unit for this installation, hardened as far as the broker permits."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from rotunda.broker.config.broker_config import BROKER_KEYS
from rotunda.broker.errors import UsageError

#: The supervisor sends a heartbeat every second, and replaces other hanging processes itself.
_WATCHDOG_S = 30
_UNIT = """\
# rotunda print-unit{options} > /etc/systemd/system/rotunda.service
# systemctl daemon-reload && systemctl enable --now rotunda

[Unit]
Description=Rotunda, a Kafka-compatible broker
After=network.target

[Service]
Type=notify
{user}
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=1
# 2: the configuration is wrong; 4: port or directory in use; 5: data of a newer version.
RestartPreventExitStatus=2 4 5
WatchdogSec={watchdog_s}
TimeoutStopSec={stop_s}
# The supervisor stops the others in their order.
KillMode=mixed
StateDirectory=rotunda
StateDirectoryMode=0700
RuntimeDirectory=rotunda
RuntimeDirectoryMode=0700
LimitNOFILE=1048576
UMask=0077

NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectSystem=strict
ProtectHome={protect_home}
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native

[Install]
WantedBy=multi-user.target
"""

#: Directories that ProtectHome= hides.
_HOMES = (Path("/home"), Path("/root"), Path("/run/user"))


def run(parsed: argparse.Namespace, environment: Mapping[str, str]) -> int:  # noqa: ARG001 - as every command
    """Print the unit. Raises UsageError for a missing configuration file."""
    program = Path(sys.executable).parent / "rotunda"
    start = [str(program)] if program.exists() else [sys.executable, "-m", "rotunda"]
    start += ["start", "--data-dir", "%S/rotunda", "--run-dir", "%t/rotunda"]
    options = ""
    needed = [program, Path(sys.base_prefix).resolve()]
    if parsed.config is not None:
        path = parsed.config.absolute()
        if not path.is_file():
            raise UsageError(f"--config: no such file: {path}")
        start += ["--config", str(path)]
        needed.append(path)
        options += f" --config {path}"
    if parsed.user:
        options += f" --user {parsed.user}"
    timeout_ms = BROKER_KEYS["shutdown.timeout.ms"].default
    print(
        _UNIT.format(
            options=options,
            user=f"User={parsed.user}" if parsed.user else "DynamicUser=yes",
            command=" ".join(start),
            watchdog_s=_WATCHDOG_S,
            stop_s=int(str(timeout_ms)) // 1000 + 10,
            protect_home="read-only" if any(map(_is_in_home, needed)) else "yes",
        ),
        end="",
    )
    return 0


def _is_in_home(path: Path) -> bool:
    return any(home in path.parents for home in _HOMES)
