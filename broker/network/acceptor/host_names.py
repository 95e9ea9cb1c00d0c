"""The addresses of hosts that limits name, looked up beside the acceptor's loop, which never waits.

Runs in the acceptor. A host that is written as an address is known at once. Names are looked up by a thread, one after
the other; until one is known its limit holds for nobody. As in Kafka an answer stays for as long as the process lives;
a name that was not found is looked for again, and the log says so.
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
    """Return the one text of an IP address: of an IPv4 address in IPv6 the IPv4 address, without a scope (as Java).

    Raises OSError for what is no address.
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
    """Return the addresses of a host, none if it has none now. Waits for name servers."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return tuple({canonical(str(info[4][0])): None for info in found})


class HostNames:
    """What is known of hosts so far."""

    def __init__(self, now_ns: Callable[[], int], resolve: Callable[[str], tuple[str, ...]] = look_up) -> None:
        self._now_ns = now_ns
        self._resolve = resolve
        self._warnings = RepeatedWarnings(_log, now_ns, _WARNING_MS)
        #: By name: its addresses; none: it was not found. Of these the thread writes.
        self._found: dict[str, tuple[str, ...]] = {}
        self._wanted: set[str] = set()
        self._thread: threading.Thread | None = None
        self._retry_at_ns = 0

    def addresses_of(self, host: str) -> tuple[str, ...]:
        """Return the addresses of a host as far as they are known. What is not is looked up by `turn`."""
        host = host.removeprefix("[").removesuffix("]")
        try:
            return (canonical(host),)
        except OSError:
            self._wanted.add(host)
            return self._found.get(host, ())

    def turn(self) -> bool:
        """Go on with what is to be looked up; return whether something has been found since the last call."""
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
        """Begin anew to note which names are wanted: limits are about to be made."""
        self._wanted.clear()

    def _take_note(self) -> bool:
        for name in sorted(self._wanted):
            if not self._found.get(name, ("",)):
                self._warnings.warning(
                    name, "the host %s that a limit of connections names is not known: the limit holds for nobody", name
                )
        return True

    def _look_up(self, names: list[str]) -> None:
        for name in names:
            self._found[name] = self._resolve(name)
