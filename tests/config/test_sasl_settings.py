"""Settings of SASL: for a listener, for one of its mechanisms, and values rejected at the start with their remedy."""

import pytest

from rotunda.broker.config.broker_config import BrokerConfig, load
from rotunda.broker.config.notes import start_notes
from rotunda.broker.config.settings.sasl import mechanisms_of
from rotunda.broker.errors import ConfigError
from rotunda.broker.metadata.configs.config_descriptions import describe_broker

MODULES = "org.apache.kafka.common.security"
ALICE = f'{MODULES}.plain.PlainLoginModule required user_alice="sesame";'
SCRAM = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "SCRAM-SHA-256"}


def loaded(**more: str) -> BrokerConfig:
    return load(None, SCRAM | {name.replace("__", "."): value for name, value in more.items()}, {})


def test_h05_a_listener_and_a_mechanism_have_settings_of_their_own() -> None:
    sets = {
        **SCRAM,
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,MY.OWN://127.0.0.1:0",
        "listener.security.protocol.map": "MY.OWN:SASL_PLAINTEXT",
        "listener.name.my.own.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,SCRAM-SHA-512",
        "listener.name.my.own.plain.sasl.jaas.config": ALICE,
        "connections.max.reauth.ms": "3",
        "listener.name.my.own.connections.max.reauth.ms": "2",
        "listener.name.my.own.scram-sha-512.connections.max.reauth.ms": "1",
    }
    config = load(None, sets, {})
    first, own = config.bound_listeners
    assert (mechanisms_of(config, first), mechanisms_of(config, own)) == (["SCRAM-SHA-256"], ["PLAIN", "SCRAM-SHA-512"])
    reauth = [
        config.of_mechanism(listener, mechanism, "connections.max.reauth.ms")
        for listener, mechanism in (("MY.OWN", "SCRAM-SHA-512"), ("MY.OWN", "PLAIN"), ("SASL_PLAINTEXT", "PLAIN"))
    ]
    assert reauth == [1, 2, 3]
    assert config.value("listener.name.my.own.scram-sha-512.connections.max.reauth.ms") == 1


def test_passwords_of_listeners_are_shown_nowhere() -> None:
    name = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    config = load(None, {**SCRAM, "sasl.enabled.mechanisms": "PLAIN", name: ALICE}, {})
    [entry] = [each for each in describe_broker(config) if each.name == name]
    assert (entry.value, entry.sensitive) == (None, True)
    assert "sesame" not in str([list(describe_broker(config)), list(config.described()), list(start_notes(config))])


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, r"no supported mechanism: GSSAPI; set sasl.enabled.mechanisms="),
        ({"sasl.enabled.mechanisms": ""}, "no supported mechanism: none is enabled"),
        ({"sasl.enabled.mechanisms": "SCRAM-SHA-1"}, "unknown mechanism SCRAM-SHA-1; known: PLAIN, SCRAM-SHA-256"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, r"PLAIN without users: set listener.name.sasl_plaintext.plain.sasl."),
        (
            {"listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": ALICE},
            "the login module of SCRAM-SHA-256 is org.apache.kafka.common.security.scram.ScramLoginModule",
        ),
        ({"listener.name.sasl_plaintext.plain.sasl.jaas.config": ALICE[:-1]}, "Invalid value .hidden. .* end with ;"),
        ({"listener.name.other.sasl.enabled.mechanisms": "PLAIN"}, "unknown listener other; known: "),
    ],
)
def test_what_cannot_work_is_rejected_with_the_remedy(sets: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as rejection:
        load(None, SCRAM | sets, {})
    assert "sesame" not in str(rejection.value)


def test_a_listener_with_sasl_may_be_reached_from_other_machines() -> None:
    config = load(None, {**SCRAM, "listeners": "SASL_PLAINTEXT://10.0.0.1:0"}, {})
    assert [str(each) for each in config.bound_listeners] == ["SASL_PLAINTEXT://10.0.0.1:0"]
    assert list(start_notes(config)) == []
    name = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    sets = {**SCRAM, "listeners": "SASL_PLAINTEXT://10.0.0.1:0", "sasl.enabled.mechanisms": "PLAIN,GSSAPI", name: ALICE}
    notes = list(start_notes(load(None, sets, {})))
    assert notes == [
        "SASL_PLAINTEXT://10.0.0.1:0 does not offer GSSAPI: Kerberos is not served",
        "SASL_PLAINTEXT://10.0.0.1:0: PLAIN sends passwords in clear; use SASL_SSL, or SCRAM",
    ]


def test_a_stock_file_of_kafka_with_scram_is_accepted() -> None:
    """Also with the credentials that brokers would use for each other."""
    sets = {
        **SCRAM,
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "sasl.jaas.config": f'{MODULES}.scram.ScramLoginModule required username="admin" password="sesame";',
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
            f'{MODULES}.scram.ScramLoginModule required username="admin" password="sesame";'
        ),
    }
    notes = list(start_notes(load(None, sets, {})))
    assert any("sasl.jaas.config without a listener has no effect, as in Kafka" in note for note in notes)
    assert "sesame" not in str(notes)
