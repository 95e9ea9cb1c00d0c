"""Settings of Kafka that this broker does not implement: accepted or rejected, with the reason.

One without meaning for this broker is accepted, stored and described, and has no effect;
the broker lists them at its start. One with an effect that the broker would silently not provide is rejected with the
reason, unless it has Kafka's default. Pure; the tables are read on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any

from rotunda.broker.config.jaas import complaint as jaas_complaint
from rotunda.broker.config.kafka_settings import TABLE
from rotunda.broker.config.keys import Key, Kind, Value

#: By why they have no meaning: settings of Kafka's table, or the beginnings of names that end with a dot.
WITHOUT_MEANING: Mapping[str, str] = MappingProxyType(
    {
        "A single broker has no replicas and no other nodes": """
            add.partitions.to.txn.retry.backoff. alter.log.dirs.replication.quota.window. auto.leader.rebalance.enable
            broker.heartbeat.interval.ms broker.session.timeout.ms controlled.shutdown. controller.quorum.
            controller.socket.timeout.ms early.start.listeners initial.broker.registration.timeout.ms
            leader.imbalance.check.interval.seconds num.replica. replica.
            replication.quota.window. request.timeout.ms socket.connection.setup.timeout.""",
        "Metadata is one file in the data directory": "metadata.log. metadata.max.",
        "OpenSSL replaces Java's providers; ssl.enabled.protocols sets the versions of TLS": """
            security.providers ssl.keymanager.algorithm ssl.protocol ssl.provider ssl.secure.random.implementation
            ssl.trustmanager.algorithm""",
        "The broker is not a client of another broker": """
            ssl.allow.dn.changes ssl.allow.san.changes ssl.endpoint.identification.algorithm""",
        "The broker does not log in to other brokers": """
            sasl.client.callback.handler.class sasl.login. sasl.mechanism. sasl.oauthbearer.assertion.
            sasl.oauthbearer.client.credentials. sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.scope
            sasl.oauthbearer.token.endpoint.url security.inter.broker.protocol""",
        "Kerberos and delegation tokens are not served": "delegation.token. sasl.kerberos.",
        "Needs the prefix of a listener's mechanism, listener.name.<listener>.<mechanism>.": """
            sasl.jaas.config sasl.server.callback.handler.class""",
        "Streams groups are not supported": "group.streams.",
        "Remote storage is not supported": """
            follower.fetch.last.tiered.offset.enable log.local.retention. log.remote.copy.lag. remote. rlmm.config.
            rsm.config.""",
        "Without an expected audience or issuer any is accepted": "sasl.oauthbearer.allow.unverified.",
        "Metrics are at /metrics of the status page": """
            kafka.metrics. metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms""",
        "Queues, buffers and caches differ from Kafka's; docs/limits.md lists their limits": """
            background.threads delete.records.purgatory.purge.interval.requests
            fetch.purgatory.purge.interval.requests group.coordinator.background.threads
            group.coordinator.cached.buffer.max.bytes group.coordinator.threads log.cleaner.io.buffer.
            log.cleaner.threads log.dir.failure.timeout.ms log.flush.offset.checkpoint.interval.ms
            log.flush.start.offset.checkpoint.interval.ms max.request.partition.size.limit
            num.recovery.threads.per.data.dir offsets.commit.timeout.ms offsets.load.buffer.size
            offsets.topic.compression.codec producer.purgatory.purge.interval.requests
            share.coordinator.append.linger.ms share.coordinator.cached.buffer.max.bytes
            share.coordinator.load.buffer.size share.coordinator.state.topic.compression.codec
            share.coordinator.threads share.coordinator.write.timeout.ms share.fetch.purgatory.purge.interval.requests
            transaction.state.log.load.buffer.size""",
        "Kafka's internal settings of share groups": """
            group.share.assignor.offload.enable group.share.dlq.manager.class.name
            group.share.persister.class.name""",
        "Limited in bytes instead: small requests by request.ring.bytes, large ones by queued.max.request.bytes": """
            queued.max.requests""",
        "Removed in Kafka 4": """
            broker.id.generation.enable inter.broker.protocol.version log.message.downconversion.enable
            log.message.format.version offsets.commit.required.acks password.encoder. reserved.broker.max.id
            zookeeper.""",
        "A setting of another server": "confluent.",
    }
)

#: Prefixes of settings of other programs and of Kafka before version 4, whose names are not all known here.
OPEN = ("confluent.", "password.encoder.", "rlmm.config.", "rsm.config.", "zookeeper.")

_JAVA_CLASS = "Java classes cannot be loaded; remove it"
_ONE_CONTROLLER = "this broker is a cluster of its own and cannot join another controller"
_USE_LISTENERS = "removed in Kafka 4; use listeners"

#: By setting: the reason why a value other than Kafka's default is rejected.
REJECTED: Mapping[str, str] = MappingProxyType(
    {
        "advertised.host.name": f"{_USE_LISTENERS} and advertised.listeners",
        "advertised.port": f"{_USE_LISTENERS} and advertised.listeners",
        "alter.config.policy.class.name": _JAVA_CLASS,
        "client.quota.callback.class": _JAVA_CLASS,
        "config.providers": "references such as ${file:...} are not resolved; write the values and remove it",
        "cordoned.log.dirs": "there is only one data directory; remove it",
        "create.topic.policy.class.name": _JAVA_CLASS,
        "host.name": _USE_LISTENERS,
        "log.message.timestamp.difference.max.ms": "removed in Kafka 4; use "
        "log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms",
        "port": _USE_LISTENERS,
        "principal.builder.class": _JAVA_CLASS,
        "remote.log.storage.system.enable": "remote storage is not supported; leave it at false",
        "sasl.oauthbearer.jwt.validator.class": _JAVA_CLASS,
        "ssl.engine.factory.class": _JAVA_CLASS,
        "transaction.two.phase.commit.enable": "two-phase commit is not supported; leave it at false",
    }
)

#: Kafka's dynamic settings that are set per broker.
_PER_BROKER = ("principal.builder.class", "sasl.", "ssl.")

#: Kafka's least values for changes while the broker runs, where the range in a file begins below.
_LEAST_WHILE_RUNNING: Mapping[str, int] = MappingProxyType({"log.cleaner.threads": 1})

#: Kafka changes these for a listener only, with the prefix listener.name.NAME.
LISTENER_ONLY = frozenset(
    f"ssl.{name}"
    for name in (
        *("key.password", "keystore.certificate.chain", "keystore.key", "keystore.location", "keystore.password"),
        *("keystore.type", "truststore.certificates", "truststore.location", "truststore.password", "truststore.type"),
    )
)


@cache
def kafka_settings() -> Mapping[str, Key]:
    """Return the settings that only Kafka implements, by name, with type, default and update mode there."""
    return MappingProxyType(parse_settings(TABLE))


def parse_settings(table: str) -> dict[str, Key]:
    """Return settings by name, from lines as in `kafka_settings`."""
    settings = {}
    for line in table.strip().splitlines():
        name, kind, mode, default, *ranges = line.split()
        least, most = [int(bound) if bound else None for bound in ranges[0].split("..")] if ranges else (None, None)
        key = Key(name=name, kind=Kind[kind], default=None, doc="", nullable=default == "null")
        settings[name] = replace(
            key,
            default=None if key.nullable else key.parse("" if default == "''" else default),
            dynamic=mode == "dynamic",
            per_broker=mode == "dynamic" and name.startswith(_PER_BROKER),
            sensitive=key.kind is Kind.PASSWORD,
            least=least,
            most=most,
            least_while_running=_LEAST_WHILE_RUNNING.get(name),
        )
    return settings


@cache
def kept_key(name: str) -> Key | None:
    """Return the key of a setting without effect here; None for an unknown name."""
    reason = REJECTED.get(name) or without_meaning(name)
    if reason is None:
        return None
    key = kafka_settings().get(name)
    if key is None:
        # Its value may be a secret, so it is never shown.
        key = Key(name=name, kind=Kind.STRING, default=None, doc="", nullable=True, sensitive=True)
    if name in REJECTED:
        return replace(key, doc=f"Not served: {reason}.", validator=_rejecting(key.default, reason))
    validator = _VALIDATORS.get(name)
    if validator is not None:
        key = replace(key, validator=validator)
    return replace(key, doc=f"{reason}. Stored and described, without effect.")


def without_meaning(name: str) -> str | None:
    """Return why a setting has no meaning here; None if it has one, is rejected, or is unknown."""
    is_known = name in kafka_settings() or name.startswith(OPEN)
    for reason, each in _without_meaning():
        if name == each or (is_known and each.endswith(".") and name.startswith(each)):
            return reason
    return None


def _without_meaning() -> Iterator[tuple[str, str]]:
    for reason, names in WITHOUT_MEANING.items():
        for name in names.split():
            yield reason, name


def _rejecting(default: Value, reason: str) -> Callable[[Any], str | None]:
    return lambda value: None if value == default or value in ("", ()) else reason


def _several_complaint(controllers: tuple[str, ...]) -> str | None:
    return _ONE_CONTROLLER if len(controllers) > 1 else None


_VALIDATORS: Mapping[str, Callable[[Any], str | None]] = MappingProxyType(
    {
        "controller.quorum.bootstrap.servers": _several_complaint,
        "controller.quorum.voters": _several_complaint,
        "sasl.jaas.config": jaas_complaint,
    }
)
