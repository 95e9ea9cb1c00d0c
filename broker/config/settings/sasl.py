"""The broker settings of SASL: mechanisms, sessions, failures, and required claims of OAUTHBEARER tokens.

Declarations, and checks of their combinations. Names and meanings are Kafka's. Passwords are in JAAS lines,
``listener.name.<listener>.<mechanism>.sasl.jaas.config``, or are made with `rotunda user` (SCRAM).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from rotunda.broker.config.jaas import parse
from rotunda.broker.config.keys import MAX_INT, Kind, setting

if TYPE_CHECKING:
    from rotunda.broker.config.keys import Value
    from rotunda.broker.config.listeners import Listener

PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER = "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"

#: The mechanisms that a listener may offer. GSSAPI is Kafka's default and is not served.
SERVED = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)
_OF_KAFKA = ("GSSAPI", *SERVED)

JAAS = "sasl.jaas.config"
_KAFKA = "org.apache.kafka.common.security."
#: By mechanism, the login module of Kafka.
_MODULES: Mapping[str, str] = MappingProxyType(
    {
        PLAIN: f"{_KAFKA}plain.PlainLoginModule",
        SCRAM_SHA_256: f"{_KAFKA}scram.ScramLoginModule",
        SCRAM_SHA_512: f"{_KAFKA}scram.ScramLoginModule",
        OAUTHBEARER: f"{_KAFKA}oauthbearer.OAuthBearerLoginModule",
    }
)
#: Kafka's classes that validate tokens: whether they accept tokens without a signature.
HANDLERS: Mapping[str, bool] = MappingProxyType(
    {
        f"{_KAFKA}oauthbearer.OAuthBearerValidatorCallbackHandler": False,
        f"{_KAFKA}oauthbearer.secured.OAuthBearerValidatorCallbackHandler": False,
        f"{_KAFKA}oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler": True,
    }
)
HANDLER = "sasl.server.callback.handler.class"
JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"


def _url_complaint(url: str) -> str | None:
    is_url = url.startswith(("file:///", "http://", "https://"))
    return None if is_url else "must begin with file:///, https:// or http://"


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class SaslSettings:
    """Settings of authentication by SASL. A part of BrokerConfig."""

    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        Kind.LIST,
        ("GSSAPI",),
        dynamic=True,
        per_broker=True,
        doc="Mechanisms of listeners with SASL_PLAINTEXT and SASL_SSL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, "
        "OAUTHBEARER. GSSAPI, Kafka's default, is not served: name others.",
    )
    sasl_server_max_receive_size: int = setting(
        Kind.INT, 524288, unit="bytes", least=1, doc="Maximum size of a request of an unauthenticated client."
    )
    connections_max_reauth_ms: int = setting(
        Kind.LONG,
        0,
        doc="Maximum duration of a session: without re-authentication its next request closes the connection. 0: "
        "unlimited, or as long as the client's token. Also for one mechanism of a listener: "
        "listener.name.<listener>.<mechanism>.connections.max.reauth.ms.",
    )
    connection_failed_authentication_delay_ms: int = setting(
        Kind.INT,
        100,
        least=0,
        doc="Delay of the error response to a failed authentication, and of the disconnection after it.",
    )
    authentication_timeout_ms: int = setting(
        Kind.INT,
        30000,
        least=1,
        most=MAX_INT,
        doc="Close connections of SASL listeners that have not authenticated after this time.",
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = setting(
        Kind.STRING,
        None,
        nullable=True,
        validator=_url_complaint,
        doc="URL of the keys that sign tokens, a JSON Web Key Set: file:///PATH or https://...",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        Kind.LONG,
        3600000,
        least=1,
        doc="Interval of reloading the keys; a token with an unknown key reloads them sooner.",
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = setting(
        Kind.LONG, 100, least=1, doc="Delay before the first retry of a failed reload of the keys."
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = setting(
        Kind.LONG,
        10000,
        least=1,
        doc="Maximum delay between retries; it doubles with each. For this long after a reload, tokens with "
        "unknown keys do not cause another.",
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = setting(
        Kind.LIST, (), doc="Accepted audiences (aud) of tokens; empty: any."
    )
    sasl_oauthbearer_expected_issuer: str | None = setting(
        Kind.STRING, None, nullable=True, doc="Required issuer (iss) of tokens; unset: any issuer with one of the keys."
    )
    sasl_oauthbearer_scope_claim_name: str = setting(
        Kind.STRING, "scope", doc="Claim with a token's scope, a string or a list."
    )
    sasl_oauthbearer_sub_claim_name: str = setting(Kind.STRING, "sub", doc="Claim with the user name.")
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        Kind.INT, 30, unit="s", least=0, doc="Allowed clock difference between the token issuer and the broker."
    )


class OfListeners(Protocol):
    """The part of a configuration that these functions read."""

    @property
    def bound_listeners(self) -> tuple[Listener, ...]:
        """The listeners."""

    @property
    def layers(self) -> Mapping[str, object]:
        """The values that were set, by property name."""

    @property
    def insecure_listen(self) -> bool:
        """Whether listeners may accept unauthenticated clients from other machines."""

    @property
    def of_listeners(self) -> Mapping[str, Value]:
        """The settings of single listeners, by property name."""

    def of_listener(self, listener: str, name: str) -> Value:
        """Return the value of a property for a listener."""

    def of_mechanism(self, listener: str, mechanism: str, name: str) -> Value:
        """Return the value of a property for a mechanism of a listener."""


def has_sasl(listener: Listener) -> bool:
    return listener.protocol.startswith("SASL_")


def mechanisms_of(config: OfListeners, listener: Listener) -> list[str]:
    wanted = config.of_listener(listener.name, "sasl.enabled.mechanisms")
    return [each for each in dict.fromkeys(wanted if isinstance(wanted, tuple) else ()) if each in SERVED]


def lets_in_unsecured(config: OfListeners, listener: Listener) -> bool:
    """Return whether a listener accepts unsigned tokens, which every client can make."""
    return HANDLERS.get(str(config.of_mechanism(listener.name, OAUTHBEARER, HANDLER)), False)


def sasl_complaint(config: OfListeners) -> str | None:
    """Return the error in the settings of listeners with SASL, if any."""
    complaints = (each for listener in config.bound_listeners if has_sasl(listener) for each in _of(config, listener))
    return next(complaints, None)


def sasl_notes(config: OfListeners) -> Iterator[str]:
    """Yield notes on unexpected effects of the settings of listeners with SASL."""
    if "sasl.jaas.config" in config.layers:
        yield (
            "sasl.jaas.config without a listener has no effect, as in Kafka: write "
            "listener.name.<listener>.<mechanism>.sasl.jaas.config"
        )
    for listener in filter(has_sasl, config.bound_listeners):
        wanted = config.of_listener(listener.name, "sasl.enabled.mechanisms")
        if "GSSAPI" in (wanted if isinstance(wanted, tuple) else ()):
            yield f"{listener} does not offer GSSAPI: Kerberos is not served"
        offered = mechanisms_of(config, listener)
        if listener.protocol == "SASL_PLAINTEXT" and not listener.is_loopback:
            for mechanism, secrets in ((PLAIN, "passwords"), (OAUTHBEARER, "tokens")):
                if mechanism in offered:
                    yield f"{listener}: {mechanism} sends {secrets} in clear; use SASL_SSL, or SCRAM"
        if OAUTHBEARER in offered and lets_in_unsecured(config, listener):
            yield f"{listener}: OAUTHBEARER accepts unsigned tokens: every client can claim any user name"


def _of(config: OfListeners, listener: Listener) -> Iterator[str]:
    wanted = config.of_listener(listener.name, "sasl.enabled.mechanisms")
    assert isinstance(wanted, tuple)  # noqa: S101 - a list by its declaration
    unknown = [each for each in wanted if each not in _OF_KAFKA]
    if unknown:
        yield f"{listener}: unknown mechanism {_listed(unknown)}; known: {_listed(SERVED)}"
    offered = mechanisms_of(config, listener)
    if not offered:
        yield (
            f"{listener} has no supported mechanism: {_listed(wanted) or 'none is enabled'}; set "
            "sasl.enabled.mechanisms=SCRAM-SHA-256, and add users with rotunda user add"
        )
    for mechanism in offered:
        yield from _of_mechanism(config, listener, mechanism)


def _of_mechanism(config: OfListeners, listener: Listener, mechanism: str) -> Iterator[str]:
    prefix = f"listener.name.{listener.name.lower()}.{mechanism.lower()}."
    text = config.of_listeners.get(prefix + JAAS)
    line = None if text is None else parse(str(text))
    if line is not None and line.module != _MODULES[mechanism]:
        yield f"{prefix}{JAAS}: the login module of {mechanism} is {_MODULES[mechanism]}"
    if mechanism == PLAIN and (line is None or not line.users):
        yield (
            f"{listener} offers PLAIN without users: set {prefix}{JAAS}="
            f'{_MODULES[PLAIN]} required user_alice="password";'
        )
    if mechanism == OAUTHBEARER:
        handler = config.of_mechanism(listener.name, OAUTHBEARER, HANDLER)
        if handler is not None and handler not in HANDLERS:
            yield f"{prefix}{HANDLER}: Java classes cannot be loaded; known: {_listed(HANDLERS)}"
        if lets_in_unsecured(config, listener):
            if not (listener.is_loopback or config.insecure_listen):
                yield (
                    f"{listener} would accept unsigned tokens from other machines; set {JWKS_URL}, or "
                    "allow it with insecure.listen=true"
                )
        elif config.of_mechanism(listener.name, OAUTHBEARER, JWKS_URL) is None:
            yield f"{listener} offers OAUTHBEARER without keys to verify tokens: set {JWKS_URL}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
