"""Edge values of all stored settings: each is rejected with Kafka's error or is in force, also after a restart.

The cases are from the tables of settings. No process ends, no line of the log is an error, and after a restart the
broker describes the same values as before.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rotunda.broker.config.broker_config import BROKER_KEYS, find_key
from rotunda.broker.config.group_config import GROUP_CONFIGS
from rotunda.broker.config.kafka import kafka_settings, kept_key
from rotunda.broker.config.keys import Key, Kind
from rotunda.broker.config.topic_config import TOPIC_CONFIGS
from rotunda.broker.metadata.configs.client_metrics_config import CLIENT_METRICS_CONFIGS
from rotunda.broker.metadata.configs.config_changes import BROKER, CLIENT_METRICS, GROUP, TOPIC
from rotunda.broker.metadata.features import SUPPORTED_FEATURES
from rotunda.broker.metadata.store.entity_store import EntityKind
from rotunda.broker.metadata.store.metadata_file import metadata_path
from rotunda.broker.metadata.store.metadata_store import MetadataStore
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from tests.support.broker_process import BrokerProcess
from tests.support.described_requests import receive_answer, send_request
from tests.support.record_batches import record_batch
from tests.support.wire_client import WireClient
from tests.support.wire_messages import create_topic, produce

SETTINGS = {
    "num.network.threads": 1,
    "num.io.threads": 2,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
#: Values that would cut the test off: the value of the broker itself hides those of all brokers.
OF_THE_BROKER = {
    "max.connections": "1000",
    "max.connections.per.ip": "1000",
    "max.connection.creation.rate": "1000",
    "max.connections.per.ip.overrides": "",
    "broker.quota.white.list.user": "ANONYMOUS",
}
#: (type of resource, name of it, setting, value)
Change = tuple[int, str, str, str]

#: Requests that are under way together.
AT_ONCE = 20
MOST = {Kind.SHORT: 2**15 - 1, Kind.INT: 2**31 - 1, Kind.LONG: 2**63 - 1}
DOUBLES = ("NaN", "Infinity", "-Infinity", "0", "-0.0", "4.9e-324", "1.7976931348623157e308", "0x1p-1074", "0.5d")
TEXTS = ("", " ", ",", "a,a", "\0", "x" * 32767, "\u2028\U0001f600", "a=b:c//d")
QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
QUOTA_VALUES = (float("nan"), float("inf"), float("-inf"), 0.0, -1.0, 5e-324, 0.5, 1.0, 2.0**31, 2.0**63, 1.7e308)
REFUSALS = {
    ErrorCode.INVALID_CONFIG,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.UNACCEPTABLE_CREDENTIAL,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM,
    ErrorCode.POLICY_VIOLATION,
}
#: Of an empty salted password alone.
SCRAM_REFUSALS = REFUSALS | {ErrorCode.UNKNOWN_SERVER_ERROR}


def edges(key: Key) -> list[str]:
    """Return values at the edges of a setting's type and range, and texts that are none."""
    if key.kind in MOST:
        most = MOST[key.kind]
        bounds = [-most - 2, -most - 1, -1, 0, 1, most, most + 1]
        bounds += [] if key.least is None else [int(key.least) - 1, int(key.least)]
        bounds += [] if key.most is None else [int(key.most), int(key.most) + 1]
        return [*map(str, dict.fromkeys(bounds)), "\u0661", "1_0", "1e3", ""]
    if key.kind is Kind.DOUBLE:
        return [*DOUBLES, *(str(bound) for bound in (key.least, key.most) if bound is not None)]
    if key.kind is Kind.BOOLEAN:
        return ["true", "FALSE", "", "maybe"]
    return [*TEXTS, *key.choices, ",".join(key.choices), ",".join(key.choices[:1] * 2)]


class Walker:
    """A connection that pipelines requests, and then checks the responses."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._log_at = broker.log_bytes()
        self._wire = WireClient(broker.port)

    def ask(self, key: ApiKey, version: int, requests: Sequence[Mapping[str, Any]]) -> Iterator[Any]:
        """Yield the responses; some requests are in flight at once."""
        for first in range(0, len(requests), AT_ONCE):
            some = requests[first : first + AT_ONCE]
            for fields in some:
                send_request(self._wire, key, version, fields)
            for _ in some:
                yield receive_answer(self._wire, key, version)

    def set_configs(self, changes: Sequence[Change], *, validate_only: bool = False) -> list[Change]:
        """Set each setting by itself; return the changes that are accepted."""
        requests = [
            {
                "resources": [
                    {
                        "resource_type": kind,
                        "resource_name": name,
                        "configs": [{"name": key, "config_operation": 0, "value": value}],
                    }
                ],
                "validate_only": validate_only,
            }
            for kind, name, key, value in changes
        ]
        responses = self.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, requests)
        codes = [response.responses[0].error_code for response in responses]
        self.accepted(codes)
        return [change for change, code in zip(changes, codes, strict=True) if code == 0]

    @staticmethod
    def accepted(codes: Iterable[int], refusals: Iterable[int] = frozenset(REFUSALS)) -> int:
        """Return how many are no errors. Those that are have to be among these."""
        found = list(map(int, codes))
        assert set(found) <= {0, *map(int, refusals)}
        return found.count(0)

    def described(self, topics: int, names: int) -> dict[str, Any]:
        """Return the broker's description of all stored settings."""
        asked = [(BROKER, ""), (BROKER, "1"), *((TOPIC, f"t{number}") for number in range(topics))]
        asked += [(kind, f"e{number}") for kind in (GROUP, CLIENT_METRICS) for number in range(names)]
        resources = [{"resource_type": kind, "resource_name": name, "configuration_keys": None} for kind, name in asked]
        flags = {"include_synonyms": True, "include_documentation": False}
        requests = [{"resources": [resource], **flags} for resource in resources]
        [quotas] = self.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, [{"components": [], "strict": False}])
        any_acl = {
            "resource_type_filter": 1,
            "resource_name_filter": None,
            "pattern_type_filter": 1,
            "principal_filter": None,
            "host_filter": None,
            "operation": 1,
            "permission_type": 1,
        }
        [acls] = self.ask(ApiKey.DESCRIBE_ACLS, 3, [any_acl])
        [users] = self.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, [{"users": None}])
        fields = {"client_software_name": "test", "client_software_version": "1"}
        [features] = self.ask(ApiKey.API_VERSIONS, 3, [fields])
        return {
            "configs": [response.results for response in self.ask(ApiKey.DESCRIBE_CONFIGS, 4, requests)],
            "quotas": sorted(map(str, quotas.entries)),
            "acls": sorted(
                f"{each.resource_type} {each.resource_name} {acl}" for each in acls.resources for acl in each.acls
            ),
            "users": sorted(map(str, users.results)),
            "features": sorted(map(str, features.finalized_features)),
        }

    def write(self, topics: Iterable[str]) -> None:
        """Append records under all settings of the topics; an error is a response."""
        for topic in topics:
            produce(self._wire, topic, 0, record_batch([b"value"]), 1)

    def restarted(self) -> Walker:
        """Start the broker again and return another connection; nothing has died, and nothing was wrong."""
        assert [row for row in self._broker.processes() if row["restarts"]] == []
        self._wire.close()
        self._broker.stop()
        self._broker.start()
        assert [line for line in self._broker.log_since(self._log_at) if " ERROR " in line or "Traceback" in line] == []
        return Walker(self._broker)

    def close(self) -> None:
        self._wire.close()


@pytest.fixture
def broker(broker_directory: Path) -> Iterator[BrokerProcess]:
    running = BrokerProcess(broker_directory, SETTINGS, ephemeral=False).start()
    yield running
    if running.is_running():
        running.stop()


def test_settings_of_brokers(broker: BrokerProcess) -> None:
    """Of the accepted values two of each setting are stored at once: one of the broker, one of all brokers."""
    kept = [key for name in kafka_settings() if (key := kept_key(name)) is not None]
    walker = Walker(broker)
    own = [(BROKER, "1", name, value) for name, value in OF_THE_BROKER.items()]
    assert walker.set_configs(own) == own
    every_value = [(BROKER, "1", key.name, text) for key in (*BROKER_KEYS.values(), *kept) for text in edges(key)]
    values: dict[str, list[str]] = {}
    for _, _, name, text in walker.set_configs(every_value, validate_only=True):
        values.setdefault(name, []).append(text)
    assert sum(map(len, values.values())) > 300
    while values:
        changes: list[Change] = []
        for name, texts in values.items():
            changes += [(BROKER, broker_id, name, texts.pop()) for broker_id in layers_of(name) if texts]
        values = {name: texts for name, texts in values.items() if texts}
        assert len(walker.set_configs(changes)) > len(changes) // 2
        before = walker.described(0, 0)
        walker = walker.restarted()
        assert walker.described(0, 0) == before
    walker.close()


def layers_of(name: str) -> tuple[str, ...]:
    """Return where a setting is set: for all brokers, and for the one unless that cuts the test off."""
    if name in OF_THE_BROKER:
        return ("",)
    key = find_key(name)
    return ("1",) if key is not None and key.per_broker else ("", "1")


def test_settings_of_topics_groups_and_client_metrics(broker: BrokerProcess) -> None:
    """As many resources of a kind as there are values, each with one of them for every setting that accepts it."""
    tables: dict[int, Mapping[str, Any]] = {
        TOPIC: TOPIC_CONFIGS,
        GROUP: {key.name: BROKER_KEYS.get(key.broker_name, key) for key in GROUP_CONFIGS.values()},
        CLIENT_METRICS: CLIENT_METRICS_CONFIGS,
    }
    values = {kind: {name: edges(key) for name, key in table.items()} for kind, table in tables.items()}
    count = max(len(texts) for table in values.values() for texts in table.values())
    walker = Walker(broker)
    with WireClient(broker.port) as wire:
        for number in range(count):
            create_topic(wire, f"t{number}", 1)
    accepted = {
        kind: len(
            walker.set_configs(
                [
                    (kind, f"{'t' if kind == TOPIC else 'e'}{number}", name, text)
                    for name, texts in table.items()
                    for number, text in enumerate(texts)
                ]
            )
        )
        for kind, table in values.items()
    }
    walker.write(f"t{number}" for number in range(count))
    before = walker.described(count, count)
    walker = walker.restarted()
    assert walker.described(count, count) == before
    walker.write(f"t{number}" for number in range(count))
    walker.restarted().close()
    assert accepted[TOPIC] > 100
    assert accepted[GROUP] > 2
    assert accepted[CLIENT_METRICS] > 5


def quota_requests() -> Iterator[dict[str, Any]]:
    entities: list[list[tuple[str, str | None]]] = [[("user", name)] for name in ("u", *TEXTS[4:])]
    entities += [[("client-id", name)] for name in ("c", *TEXTS[:5], "<default>")]
    entities += [[("user", "u"), ("client-id", "c")], [("user", None), ("client-id", "c")], [("ip", None)]]
    entities += [[("ip", name)] for name in ("10.0.0.1", "::1", "localhost", "a b", "\0", "999.1.1.1", "")]
    for entity in entities:
        keys = ("connection_creation_rate", *QUOTAS[:1]) if entity[0][0] == "ip" else QUOTAS
        named = [{"entity_type": kind, "entity_name": name} for kind, name in entity]
        for key, value in itertools.product(keys, QUOTA_VALUES):
            ops = [{"key": key, "value": value, "remove": False}]
            yield {"entries": [{"entity": named, "ops": ops}], "validate_only": False}
    # The limit of all addresses is the test's as well.
    named = [{"entity_type": "ip", "entity_name": None}]
    ops = [{"key": "connection_creation_rate", "value": 0.0, "remove": True}]
    yield {"entries": [{"entity": named, "ops": ops}], "validate_only": False}


def acl_requests() -> Iterator[dict[str, Any]]:
    base = {
        "resource_type": 2,
        "resource_name": "t",
        "resource_pattern_type": 3,
        "principal": "User:a",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    numbers = (-128, -1, *range(20), 127)
    texts = ("", "*", ":", "User:", "User:*", "User:\0", "Group:g", "\u2028", "x" * 32767)
    for field, value in base.items():
        for other in numbers if isinstance(value, int) else texts:
            yield {"creations": [{**base, field: other}]}


def credential_requests() -> Iterator[dict[str, Any]]:
    base = {"name": "a", "mechanism": 1, "iterations": 4096, "salt": b"s", "salted_password": b"p"}
    others: dict[str, Sequence[Any]] = {
        "name": ("", "\0", "\u2028", "a,b=c", "\u00e9" * 2048, "x" * 4097),
        "mechanism": (-128, -1, 0, 2, 3, 127),
        "iterations": (-(2**31), 0, 4095, 16384, 16385, 2**31 - 1),
        "salt": (b"", b"\0", bytes(64 * 1024)),
        "salted_password": (b"", b"\0", bytes(64 * 1024)),
    }
    for number, (field, value) in enumerate((field, value) for field, values in others.items() for value in values):
        yield {"deletions": [], "upsertions": [{**base, "name": f"u{number}", field: value}]}


def feature_requests() -> Iterator[dict[str, Any]]:
    levels = (-(2**15), -1, 31, 2**15 - 1, 3, 2, 1, 0)
    for name, level, kind in itertools.product((*SUPPORTED_FEATURES, "", "kraft.version"), levels, (0, 1, 2, 3, 4)):
        update = {"feature": name, "max_version_level": level, "upgrade_type": kind}
        yield {"timeout_ms": 1000, "feature_updates": [update], "validate_only": False}


def test_quotas_acls_credentials_and_features(broker: BrokerProcess) -> None:
    walker = Walker(broker)
    responses = walker.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, list(quota_requests()))
    assert walker.accepted(response.entries[0].error_code for response in responses) > 100
    responses = walker.ask(ApiKey.CREATE_ACLS, 3, list(acl_requests()))
    assert walker.accepted(response.results[0].error_code for response in responses) > 20
    responses = walker.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, list(credential_requests()))
    assert walker.accepted((response.results[0].error_code for response in responses), SCRAM_REFUSALS) > 8
    responses = walker.ask(ApiKey.UPDATE_FEATURES, 1, list(feature_requests()))
    assert walker.accepted(response.error_code for response in responses) > 5
    before = walker.described(0, 0)
    walker = walker.restarted()
    assert walker.described(0, 0) == before
    walker.restarted().close()


def test_a_broker_serves_with_values_that_it_cannot_read(broker: BrokerProcess) -> None:
    """An older version stored them, or the file was damaged: one line for each, and a client removes one of them."""
    broker.stop()
    with closing(MetadataStore.open(metadata_path(broker.data_dir))) as store, store.transaction() as transaction:
        transaction.set_broker_configs("", {"storage.free.min.ratio": "NaN", "message.max.bytes": "5000"})
        transaction.set_entity(EntityKind.USER_CREDENTIAL, "alice", {"SCRAM-SHA-256": "salt"})
        transaction.set_entity(EntityKind.ACL, "[2,", {"": 1})
    log_at = broker.log_bytes()
    broker.start()
    lines = [line for line in broker.log_since(log_at) if " ERROR " in line]
    names = "storage.free.min.ratio of broker default", "SCRAM-SHA-256 of user-credential alice", "the value of acl [2,"
    assert len(lines) == len(names)
    assert all(sum(f"{name} cannot be read and has no effect" in line for line in lines) == 1 for name in names)
    assert [row for row in broker.processes() if row["restarts"]] == []
    assert "5000" in broker.command("config", "list", "--cluster").stdout
    removed = broker.command("config", "delete", "storage.free.min.ratio", "--cluster")
    assert removed.returncode == 0, removed.stderr
    broker.stop()
    log_at = broker.log_bytes()
    broker.start()
    assert len([line for line in broker.log_since(log_at) if " ERROR " in line]) == len(names) - 1
