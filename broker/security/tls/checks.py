"""Whether listeners of TLS can be served as configured; asked before a broker starts, and before settings change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rotunda.broker.security.tls.listener_tls import all_tls

if TYPE_CHECKING:
    from rotunda.broker.config.broker_config import BrokerConfig


def check_tls(config: BrokerConfig, before: BrokerConfig | None = None) -> None:
    """Raise ConfigError, worded for the user, unless every listener of TLS, and the status page, could be served.

    ``before``: what was served with these settings is served on, whatever has become of its files.
    """
    served = [] if before is None else all_tls(before)
    for settings in all_tls(config):
        if settings not in served:
            from rotunda.broker.security.tls.contexts import make  # noqa: PLC0415 - OpenSSL is loaded where it is needed

            make(settings)
