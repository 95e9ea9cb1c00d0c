"""Resolves the host names in connection limits on a thread, so that the acceptor's loop never blocks.

Runs in the acceptor. A host written as an address needs no lookup. Names are resolved one after the other; until then
the limit of a name applies to no address. As in Kafka a result is valid as long as the process runs; a name that was
not found is retried, with a warning in the log.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable

from rotunda.broker.server_log.log_setup import RepeatedWarnings
from rotunda.shm.tables.client_hosts import host_text, packed_host

_log = logging.getLogger(__name__)

RETRY_NS = 60_000_000_000
_WARNING_MS = 3_600_000


def canonical(address: str) -> str:
    """Return the one text of an IP address: the IPv4 address of a mapped IPv6 address, without a scope (as Java).

    Raises OSError for an invalid address.
    """
    return host_text(packed_host(address))


def is_address(host: str) -> bool:
    """Return whether a host is written as an address, in brackets or not."""
    try:
        canonical(host.removeprefix("[").removesuffix("]"))
    except OSError:
        return False
    return True


def look_up(host: str) -> tuple[str, ...]:
    """Return the addresses of a host, empty if none are found. Blocks on name servers."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return tuple({canonical(str(info[4][0])): None for info in found})


class HostNames:
    """The addresses resolved so far."""

    def __init__(self, now_ns: Callable[[], int], resolve: Callable[[str], tuple[str, ...]] = look_up) -> None:
        self._now_ns = now_ns
        self._resolve = resolve
        self._warnings = RepeatedWarnings(_log, now_ns, _WARNING_MS)
        #: By name: its addresses, empty if not found. Written by the lookup thread.
        self._found: dict[str, tuple[str, ...]] = {}
        self._wanted: set[str] = set()
        self._thread: threading.Thread | None = None
        self._retry_at_ns = 0

    def addresses_of(self, host: str) -> tuple[str, ...]:
        """Return the known addresses of a host. Unknown names are queued for `run_once`."""
        host = host.removeprefix("[").removesuffix("]")
        try:
            return (canonical(host),)
        except OSError:
            self._wanted.add(host)
            return self._found.get(host, ())

    def run_once(self) -> bool:
        """Continue the pending lookups; return whether one has finished since the last call."""
        if self._thread is not None:
            if self._thread.is_alive():
                return False
            self._thread = None
            return self._take_note()
        now_ns = self._now_ns()
        missing = [name for name in self._wanted if name not in self._found]
        if not missing and now_ns >= self._retry_at_ns:
            missing = [name for name in self._wanted if not self._found[name]]
        if missing:
            self._retry_at_ns = now_ns + RETRY_NS
            self._thread = threading.Thread(target=self._look_up, args=(missing,), daemon=True)
            self._thread.start()
        return False

    def forget_wanted(self) -> None:
        """Clear the wanted names; called before limits are rebuilt."""
        self._wanted.clear()

    def _take_note(self) -> bool:
        for name in sorted(self._wanted):
            if not self._found.get(name, ("",)):
                self._warnings.warning(name, "unknown host %s in a connection limit: the limit has no effect", name)
        return True

    def _look_up(self, names: list[str]) -> None:
        for name in names:
            self._found[name] = self._resolve(name)
