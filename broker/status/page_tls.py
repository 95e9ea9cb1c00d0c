"""The certificate of the status page: the broker's own, reloaded when its files are read again.

Runs in the web process, which loads it before the web framework. Settings are validated with `page_tls`, which returns
the page's TLS settings. The page uses the certificate settings without a listener prefix; the others belong to their
listener.
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
    """The TLS context of the page's handshakes. Raises ConfigError if the first one is invalid."""

    def __init__(self, live: LiveSettings) -> None:
        self._live = live
        self._followed = self._wanted()
        self._context = make(self._followed[0]).context

    def context(self) -> ssl.SSLContext:
        """Return the context of new connections."""
        return self._context

    def follow(self) -> None:
        """Load changed settings, or files that were read again; an invalid certificate leaves the old one."""
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
