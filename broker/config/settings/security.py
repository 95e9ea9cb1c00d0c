"""The settings of security: of TLS, of SASL, and of authorisation. A part of BrokerConfig."""

from __future__ import annotations

from dataclasses import dataclass

from rotunda.broker.config.settings.authorization import AuthorizationSettings
from rotunda.broker.config.settings.sasl import SaslSettings
from rotunda.broker.config.settings.tls import TlsSettings


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class SecuritySettings(AuthorizationSettings, SaslSettings, TlsSettings):
    """All of them."""
