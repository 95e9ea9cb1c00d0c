"""The port of the status page: bound early, so that its address is known.

Runs in the supervisor. The page is optional: if it cannot be served, the broker continues without it and logs the
remedy. Only an explicitly configured port that is in use stops the start.
"""

from __future__ import annotations

import errno
import logging
import socket
from importlib.util import find_spec
from typing import TYPE_CHECKING

from rotunda.broker.config.bound_socket import resolve
from rotunda.broker.config.settings.status import STATUS_PORT
from rotunda.broker.errors import BootFailed

if TYPE_CHECKING:
    from rotunda.broker.config.broker_config import BrokerConfig

_log = logging.getLogger(__name__)

_IN_USE_EXIT_CODE = 4

_BACKLOG = 1024

#: The packages of the extra `web`, which the page needs.
_NEEDED = ("fastapi", "uvicorn")


def bind_status_page(config: BrokerConfig) -> socket.socket | None:
    """Return the page's socket, listening; None without a page.

    Raises BootFailed if an explicitly configured address is not available, with exit code 4 if it is in use.
    """
    if not config.status_page_enable:
        return None
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        names = " and ".join(missing)
        _log.warning("no status page: %s is not installed; run `pip install %s`", names, " ".join(missing))
        return None
    asked = STATUS_PORT in config.origins
    try:
        return _bind(config.status_host, config.status_port)
    except OSError as failure:
        message = f"the status page cannot listen on {config.status_host}:{config.status_port}: {_reason(failure)}"
        if asked or "status.host" in config.origins:
            exit_code = _IN_USE_EXIT_CODE if failure.errno == errno.EADDRINUSE else 1
            raise BootFailed(f"{message}; see status.port and status.page.enable", exit_code) from failure
    try:
        found = _bind(config.status_host, 0)
    except OSError:
        _log.warning("%s; starting without a status page", message)
        return None
    _log.warning("%s; using port %d instead", message, found.getsockname()[1])
    return found


def status_url(listening: socket.socket | None, *, by_https: bool = False) -> str:
    """Return the page's address for a browser on this machine; empty without a page."""
    if listening is None:
        return ""
    host, port = listening.getsockname()[:2]
    if host in {"0.0.0.0", "::"}:  # noqa: S104 - recognised, not bound
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"  # noqa: S104
    scheme = "https" if by_https else "http"
    return f"{scheme}://[{host}]:{port}/" if ":" in host else f"{scheme}://{host}:{port}/"


def _bind(host: str, port: int) -> socket.socket:
    family, address = resolve(host, port)
    listening = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        # At once: two brokers could bind the same port as long as neither listens.
        listening.listen(_BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


def _reason(failure: OSError) -> str:
    return "the port is in use by another program" if failure.errno == errno.EADDRINUSE else str(failure)
