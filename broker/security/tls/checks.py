"""Checks that the TLS listeners can be served as configured, before a broker starts and before settings change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rotunda.broker.security.tls.listener_tls import all_tls

if TYPE_CHECKING:
    from rotunda.broker.config.broker_config import BrokerConfig


def check_tls(config: BrokerConfig, before: BrokerConfig | None = None) -> None:
    """Raise ConfigError, worded for the user, unless every TLS listener, and the status page, can be served.

    Settings that are in ``before`` are not checked again: they stay in service, even if their files have changed.
    """
    served = [] if before is None else all_tls(before)
    for settings in all_tls(config):
        if settings not in served:
            from rotunda.broker.security.tls.contexts import make  # noqa: PLC0415 - OpenSSL is loaded where it is needed

            make(settings)
