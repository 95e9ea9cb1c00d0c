"""Settings that a listener may override: ``listener.name.<listener>.<setting>``, the listener in lower case.

As in Kafka (KIP-103, KIP-402, KIP-612, `H05`). A listener without a value of its own has the broker's (`A09`). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

PREFIX = "listener.name."

#: The settings that a listener may override.
OF_LISTENERS = (
    *("max.connections", "max.connection.creation.rate", "ssl.cipher.suites", "ssl.client.auth"),
    *("ssl.enabled.protocols", "ssl.endpoint.identification.algorithm", "ssl.engine.factory.class", "ssl.key.password"),
    *("ssl.keymanager.algorithm", "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.location"),
    *("ssl.keystore.password", "ssl.keystore.type", "ssl.principal.mapping.rules", "ssl.protocol", "ssl.provider"),
    *("ssl.secure.random.implementation", "ssl.trustmanager.algorithm", "ssl.truststore.certificates"),
    *("ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type"),
)

#: The SASL settings that it may override as well, each also for one of its mechanisms, with the mechanism's name in
#: lower case before the setting (`H05`).
OF_MECHANISMS = (
    *(
        "connections.max.reauth.ms",
        "sasl.enabled.mechanisms",
        "sasl.jaas.config",
        "sasl.oauthbearer.clock.skew.seconds",
    ),
    *("sasl.oauthbearer.expected.audience", "sasl.oauthbearer.expected.issuer", "sasl.oauthbearer.jwks.endpoint.url"),
    *("sasl.oauthbearer.scope.claim.name", "sasl.oauthbearer.sub.claim.name", "sasl.server.callback.handler.class"),
    "sasl.server.max.receive.size",
)
_MECHANISMS = ("plain", "scram-sha-256", "scram-sha-512", "oauthbearer", "gssapi")


def own_name(listener: str, name: str) -> str:
    """Return the name of a listener's own value of a setting."""
    return f"{PREFIX}{listener.lower()}.{name}"


def split(name: str) -> tuple[str, str] | None:
    """Return the listener, in lower case, and the setting in a name; None for any other name."""
    if not name.startswith(PREFIX):
        return None
    for base in (*OF_LISTENERS, *OF_MECHANISMS):
        listener = name.removeprefix(PREFIX).removesuffix(f".{base}")
        if name == own_name(listener, base) and listener:
            return _without_mechanism(listener) if base in OF_MECHANISMS else listener, base
    return None


def _without_mechanism(text: str) -> str:
    listener, _, mechanism = text.rpartition(".")
    return listener if mechanism in _MECHANISMS and listener else text


def unknown_listener(names: Iterable[str], listeners: Iterable[str]) -> str | None:
    """Return an error if one of these settings is for none of the listeners.

    Not for dynamic settings: they may be for a future listener.
    """
    known = [listener.lower() for listener in listeners]
    for name in names:
        own = split(name)
        if own and own[0] not in known:
            return f"{name}: unknown listener {own[0]}; known: {', '.join(known)}"
    return None
