"""Notifies the service manager that started the broker, by systemd's protocol (sd_notify(3)).

Runs in the supervisor. It sends datagrams to the socket in NOTIFY_SOCKET; without that variable nothing is sent. While
the supervisor's loop runs it sends keep-alives, for WatchdogSec=. A failure to send never stops the broker.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

_log = logging.getLogger(__name__)


class ServiceManager:
    """The connection to the service manager, if there is one."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        # A socket without a file has a name that starts with a zero byte, written as "@".
        self._address = "\0" + address[1:] if address.startswith("@") else address
        # The watchdog may be meant for another process; its environment was inherited.
        mine = environment.get("WATCHDOG_PID") in (None, str(os.getpid()))
        self._is_watched = mine and bool(environment.get("WATCHDOG_USEC"))

    def ready(self, status: str) -> None:
        """Send that the broker serves, and a status line."""
        self._send(f"READY=1\nSTATUS={status}")

    def alive(self) -> None:
        """Send a keep-alive of the supervisor's loop, if the watchdog is enabled."""
        if self._is_watched:
            self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Send that the broker is stopping."""
        self._send("STOPPING=1\nSTATUS=stopping")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                # A manager that does not read must not block the supervisor.
                sender.setblocking(False)
                sender.sendto(text.encode(), self._address)
        except OSError as error:
            if not isinstance(error, BlockingIOError):
                _log.warning("cannot reach the service manager at NOTIFY_SOCKET: %s", error)
                self._address = ""
