"""The listeners with SASL, made from the settings: which mechanisms each offers, and with what they check clients.

Pure but for the keys of OAUTHBEARER, which are fetched besides (`jwks`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from broker.config.jaas import parse
from broker.config.sasl import JAAS, PLAIN, has_sasl, mechanisms_of
from broker.security.sasl.listener import SaslListener
from broker.security.sasl.plain import PlainServer
from broker.security.sasl.scram import ScramServer

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.config.listeners import Listener
    from broker.security.sasl.mechanism import SaslServer
    from broker.security.sasl.user_credentials import UserCredentials

_REAUTH = "connections.max.reauth.ms"


def sasl_listeners(config: BrokerConfig, credentials: UserCredentials) -> dict[str, SaslListener]:
    """Return the listeners with SASL by name."""
    return {each.name: _listener(config, each, credentials) for each in config.bound_listeners if has_sasl(each)}


def _listener(config: BrokerConfig, listener: Listener, credentials: UserCredentials) -> SaslListener:
    offered = mechanisms_of(config, listener)
    size = config.of_listener(listener.name, "sasl.server.max.receive.size")
    lifetimes = {each: config.of_mechanism(listener.name, each, _REAUTH) for each in offered}
    return SaslListener(
        listener.name,
        {each: _server(config, listener, each, credentials) for each in offered},
        size if isinstance(size, int) else 0,
        {each: value if isinstance(value, int) else 0 for each, value in lifetimes.items()},
    )


def _server(
    config: BrokerConfig, listener: Listener, mechanism: str, credentials: UserCredentials
) -> Callable[[], SaslServer]:
    if mechanism == PLAIN:
        text = config.of_mechanism(listener.name, PLAIN, JAAS)
        return partial(PlainServer, parse(str(text)).users if text else {})
    return partial(ScramServer, mechanism, credentials)
