"""Creates the listeners with SASL from the settings: the mechanisms of each, and their credentials.

Pure except for the keys of OAUTHBEARER, which a thread reads (`jwks`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from rotunda.broker.config.jaas import parse
from rotunda.broker.config.settings.sasl import (
    JAAS,
    JWKS_URL,
    OAUTHBEARER,
    PLAIN,
    has_sasl,
    lets_in_unsecured,
    mechanisms_of,
)
from rotunda.broker.security.sasl.jwks import JwksSettings, KeySets
from rotunda.broker.security.sasl.listener import SaslListener
from rotunda.broker.security.sasl.oauthbearer import OAuthBearerServer, Rules, Validate, signed, unsecured
from rotunda.broker.security.sasl.plain import PlainServer
from rotunda.broker.security.sasl.scram import ScramServer

if TYPE_CHECKING:
    from rotunda.broker.config.broker_config import BrokerConfig
    from rotunda.broker.config.listeners import Listener
    from rotunda.broker.security.sasl.mechanism import SaslServer
    from rotunda.broker.security.sasl.user_credentials import UserCredentials

_REAUTH = "connections.max.reauth.ms"


class SaslListeners:
    """Creates the listeners, and holds the key sets, which outlive changes of the settings."""

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._key_sets = KeySets()
        self._needed: set[JwksSettings] = set()

    def make(self, config: BrokerConfig, credentials: UserCredentials) -> dict[str, SaslListener]:
        """Return the listeners with SASL by name."""
        self._needed = set()
        made = {
            each.name: self._listener(config, each, credentials) for each in config.bound_listeners if has_sasl(each)
        }
        self._key_sets.keep(self._needed)
        return made

    def _listener(self, config: BrokerConfig, listener: Listener, credentials: UserCredentials) -> SaslListener:
        offered = mechanisms_of(config, listener)
        size: Any = config.of_listener(listener.name, "sasl.server.max.receive.size")
        lifetimes: dict[str, Any] = {each: config.of_mechanism(listener.name, each, _REAUTH) for each in offered}
        servers = {each: self._server(config, listener, each, credentials) for each in offered}
        return SaslListener(listener.name, servers, size, lifetimes)

    def _server(
        self, config: BrokerConfig, listener: Listener, mechanism: str, credentials: UserCredentials
    ) -> Callable[[], SaslServer]:
        if mechanism == PLAIN:
            return partial(PlainServer, parse(str(config.of_mechanism(listener.name, PLAIN, JAAS))).users)
        if mechanism == OAUTHBEARER:
            return partial(OAuthBearerServer, self._validator(config, listener))
        return partial(ScramServer, mechanism, credentials)

    def _validator(self, config: BrokerConfig, listener: Listener) -> Validate:
        def value(name: str) -> Any:
            return config.of_mechanism(listener.name, OAUTHBEARER, name)

        prefix = "sasl.oauthbearer."
        rules = Rules(
            value(f"{prefix}sub.claim.name"),
            value(f"{prefix}scope.claim.name"),
            value(f"{prefix}expected.audience"),
            value(f"{prefix}expected.issuer"),
            value(f"{prefix}clock.skew.seconds"),
        )
        if lets_in_unsecured(config, listener):
            return unsecured(rules, self._wall_ms)
        place = JwksSettings(
            value(JWKS_URL),
            config.sasl_oauthbearer_jwks_endpoint_refresh_ms,
            config.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms,
            config.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms,
        )
        self._needed.add(place)
        return signed(rules, self._key_sets.of(place).find)
