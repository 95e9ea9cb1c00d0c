"""The certificate of the status page: the broker's, and the new one once the files have been read again.

Runs in the web process, which has it before its framework is loaded; and wherever settings are checked, `page_tls` says
what the page serves with. A listener's own certificates are that listener's: the page has those without a name.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rotunda.broker.errors import ConfigError
from rotunda.broker.security.tls.contexts import make
from rotunda.broker.security.tls.listener_tls import ListenerTls, page_tls

if TYPE_CHECKING:
    import ssl

    from rotunda.broker.metadata.configs.live_settings import LiveSettings

_log = logging.getLogger(__name__)


class PageTls:
    """What the page's handshakes go by. Raises ConfigError when it cannot be served from the beginning."""

    def __init__(self, live: LiveSettings) -> None:
        self._live = live
        self._followed = self._wanted()
        self._context = make(self._followed[0]).context

    def context(self) -> ssl.SSLContext:
        """Return what new connections are served with."""
        return self._context

    def follow(self) -> None:
        """Take over other settings, or files that have been read again; what cannot be served changes nothing."""
        wanted = self._wanted()
        if wanted == self._followed:
            return
        self._followed = wanted
        try:
            self._context = make(wanted[0]).context
        except ConfigError as failure:
            _log.warning("the status page keeps its old certificate: %s", failure)
        else:
            _log.info("reloaded the certificate of the status page")

    def _wanted(self) -> tuple[ListenerTls, int]:
        settings = page_tls(self._live.broker_config)
        assert settings is not None  # noqa: S101 - it does not change while the broker runs
        return settings, self._live.certificate_readings
