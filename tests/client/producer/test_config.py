"""The configuration of a producer is validated as Kafka validates it."""

from __future__ import annotations

import pytest

from rotunda.broker.client.producer.config import Compression, ProducerConfig, read_config
from rotunda.broker.errors import ConfigError


def config(**settings: object) -> ProducerConfig:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return read_config({"bootstrap.servers": "127.0.0.1:9092", **named})


def test_the_defaults_are_those_of_kafka_4() -> None:
    found = config()
    assert found.settings.required_acks == -1
    assert found.settings.enable_idempotence
    assert (found.settings.linger_ms, found.settings.batch_size, found.settings.buffer_memory) == (5, 16384, 33554432)
    assert (found.settings.delivery_timeout_ms, found.settings.max_block_ms) == (120_000, 60_000)
    assert found.settings.compression == Compression(0, None)
    assert found.settings.bootstrap_servers == ("127.0.0.1:9092",)


def test_values_are_of_python_or_as_files_have_them() -> None:
    settings = {"acks": 1, "compression_type": "zstd", "compression_zstd_level": 9}
    found = config(linger_ms="7", enable_idempotence=False, **settings).settings
    assert (found.linger_ms, found.required_acks, found.compression) == (
        7,
        1,
        Compression(4, 9),
    )
    assert read_config({"bootstrap.servers": ["a:1", "b:2"]}).settings.bootstrap_servers == ("a:1", "b:2")


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("linger.msx", 1, "did you mean linger.ms?"),
        ("acks", "2", "String must be one of: all, -1, 0, 1"),
        ("batch.size", -1, "Value must be at least 0"),
        ("batch.size", "many", "Not a number of type INT"),
        ("compression.type", "brotli", "none, gzip, snappy, lz4, zstd"),
        ("transactional.id", "", "String must be non-empty"),
        ("metadata.recovery.strategy", "hope", "rebootstrap, none"),
        ("security.protocol", "SASL_TLS", "PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("transaction.two.phase.commit.enable", True, "KIP-939"),
    ],
)
def test_invalid_values_are_rejected_with_the_valid_ones(name, value, complaint) -> None:
    with pytest.raises(ConfigError) as failure:
        read_config({"bootstrap.servers": "a:1", name: value})
    assert name in str(failure.value)
    assert complaint in str(failure.value)


def test_no_server_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        read_config({})


def test_g01_client_ids_count_up_or_are_those_of_transactions() -> None:
    first, second = (config().settings.client_id.partition("producer-")[2] for _ in range(2))
    assert int(second) > int(first)
    assert config(transactional_id="tx").settings.client_id == "producer-tx"
    assert config(client_id="mine").settings.client_id == "mine"


def test_g07_the_delivery_timeout_is_lifted_or_rejected(caplog) -> None:
    assert config(linger_ms=100_000, request_timeout_ms=50_000).settings.delivery_timeout_ms == 150_000
    assert "delivery.timeout.ms is raised to 150000" in caplog.text
    with pytest.raises(ConfigError, match="set it to 30005 or more"):
        config(delivery_timeout_ms=30_004)
    assert config(delivery_timeout_ms=30_005).settings.delivery_timeout_ms == 30_005


def test_g25_idempotence_is_rejected_where_asked_for_and_switched_off_elsewhere() -> None:
    for settings in ({"acks": 1}, {"retries": 0}):
        assert not config(**settings).settings.enable_idempotence
        with pytest.raises(ConfigError, match=r"enable\.idempotence=true is incompatible with"):
            config(enable_idempotence=True, **settings)
        with pytest.raises(ConfigError, match=r"transactional\.id needs"):
            config(transactional_id="tx", **settings)
    with pytest.raises(ConfigError, match="at most 5"):
        config(max_in_flight_requests_per_connection=6)
    assert not config(max_in_flight_requests_per_connection=6, enable_idempotence=False).settings.enable_idempotence


def test_g38_names_of_kafka_0_10_are_read_as_their_replacements(caplog) -> None:
    found = config(metadata_fetch_timeout_ms=1234, timeout_ms=4321).settings
    assert (found.max_block_ms, found.request_timeout_ms) == (1234, 4321)
    assert config(block_on_buffer_full=True).settings.max_block_ms == 2**63 - 1
    assert config(block_on_buffer_full="false").settings.max_block_ms == 0
    assert config(metadata_fetch_timeout_ms=1, max_block_ms=2).settings.max_block_ms == 2
    assert caplog.text.count("is a name of Kafka 0.10") == 5


def test_settings_of_java_alone_are_accepted_with_a_warning(caplog) -> None:
    config(metric_reporters="x.Y")
    assert "metric.reporters has no effect here" in caplog.text
