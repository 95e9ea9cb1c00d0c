"""The broker's configuration: sources of values, rejected values and the error messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from rotunda.broker.config.arena import arena_bytes
from rotunda.broker.config.broker_config import BROKER_KEYS, BrokerConfig, key_of, load
from rotunda.broker.config.kafka import kafka_settings
from rotunda.broker.config.keys import Key, render
from rotunda.broker.config.listener_overrides import split
from rotunda.broker.config.properties_file import Property, parse_properties
from rotunda.broker.config.reference_page import describe_markdown, sample_properties
from rotunda.broker.config.sources import Source
from rotunda.broker.errors import ConfigError
from rotunda.broker.metadata.configs.config_descriptions import (
    DEFAULT_CONFIG,
    DYNAMIC_BROKER_CONFIG,
    DYNAMIC_DEFAULT_BROKER_CONFIG,
    STATIC_BROKER_CONFIG,
    ConfigEntry,
    Synonym,
    describe_broker,
    describe_cluster_default,
)

BROKER_TABLE = describe_markdown().partition("## Topics")[0].splitlines()


def load_file(tmp_path: Path, text: str) -> BrokerConfig:
    file = tmp_path / "server.properties"
    file.write_text(text, encoding="utf-8")
    return load(file, {}, {})


def described(config: BrokerConfig) -> dict[str, ConfigEntry]:
    return {entry.name: entry for entry in describe_broker(config)}


def test_defaults_listen_on_loopback_only() -> None:
    config = load(None, {}, {})
    assert [str(listener) for listener in config.bound_listeners] == ["PLAINTEXT://127.0.0.1:9092"]
    assert config.effective_advertised_listeners == config.bound_listeners
    assert config.origin("listeners").source is Source.DEFAULT


def test_defaults_that_are_kafkas() -> None:
    """`A04`, `A06`, `C02`, `D10`: defaults of the rows."""
    config = load(None, {}, {})
    assert config.socket_request_max_bytes == 104857600
    assert config.socket_listen_backlog_size == 50
    assert (config.socket_send_buffer_bytes, config.socket_receive_buffer_bytes) == (102400, 102400)
    assert (config.pipeline_max, config.pipeline_resume) == (64, 8)
    assert config.message_max_bytes == 1048588


@pytest.mark.parametrize(("cpus", "processors", "handlers"), [(1, 1, 1), (2, 1, 1), (8, 3, 4), (64, 3, 8)])
def test_thread_counts_follow_the_cpus(
    monkeypatch: pytest.MonkeyPatch, cpus: int, processors: int, handlers: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(cpus)))
    config = load(None, {}, {})
    assert (config.num_network_threads, config.num_io_threads) == (processors, handlers)


def test_flag_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nmessage.max.bytes=2\nfetch.max.bytes=2048\n", encoding="utf-8")
    environment = {"ROTUNDA_NUM_PARTITIONS": "3", "ROTUNDA_MESSAGE_MAX_BYTES": "3"}
    config = load(file, {"num.partitions": "4"}, environment)
    assert (config.num_partitions, config.message_max_bytes, config.fetch_max_bytes) == (4, 3, 2048)
    places = {name: place for name, _, place in config.described()}
    assert places["num.partitions"] == "flag --set num.partitions"
    assert places["message.max.bytes"] == "environment ROTUNDA_MESSAGE_MAX_BYTES"
    assert places["fetch.max.bytes"] == f"{file}:3"
    assert places["max.partitions"] == "default"


def test_environment_of_kafkas_images_is_read_and_ours_wins() -> None:
    config = load(None, {}, {"KAFKA_NUM_PARTITIONS": "2", "KAFKA_HEAP_OPTS": "-Xmx1g", "PATH": "/bin"})
    assert config.num_partitions == 2
    both = {"ROTUNDA_NUM_PARTITIONS": "3", "KAFKA_NUM_PARTITIONS": "2", "ROTUNDA_RUN_DIR": "/run/x"}
    assert load(None, {}, both).num_partitions == 3


def test_unknown_names_are_rejected_with_the_closest_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"flag --set num.partition: .*did you mean num.partitions\?"):
        load(None, {"num.partition": "1"}, {})
    with pytest.raises(ConfigError, match=r"environment ROTUNDA_NUM_PARTITION: .*did you mean num.partitions"):
        load(None, {}, {"ROTUNDA_NUM_PARTITION": "1"})
    with pytest.raises(ConfigError, match=r"server.properties:2: unknown setting log.retention.hour "):
        load_file(tmp_path, "# comment\nlog.retention.hour=1\n")


def test_every_mistake_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_file(tmp_path, "num.partitions=0\nephemeral=perhaps\nnum.io.threads=many\nnonsense=1\n")
    lines = str(caught.value).splitlines()
    assert len(lines) == 4
    assert lines[0].endswith("Invalid value 0 for configuration num.partitions: Value must be at least 1")
    assert lines[1].endswith("Expected value to be either true or false")
    assert lines[2].endswith("Not a number of type INT")


def test_a_file_that_cannot_be_read_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the configuration file"):
        load(tmp_path / "absent.properties", {}, {})


@pytest.mark.parametrize(
    ("sets", "complaint"),
    [
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, "allow it with insecure.listen=true"),
        ({"listeners": "PLAINTEXT://:9092"}, "allow it with insecure.listen=true"),
        ({"listeners": "PLAINTEXT://example.org:9092"}, "allow it with insecure.listen=true"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "cannot be advertised"),
        ({"advertised.listeners": "OTHER://localhost:1"}, "no protocol for listener OTHER"),
        ({"listeners": "PLAINTEXT://localhost:1,PLAINTEXT://localhost:2"}, "must have a different name"),
        ({"listeners": "localhost:9092"}, "expected NAME://host:port"),
        ({"listeners": "PLAINTEXT://localhost:65536"}, "invalid port in "),
        ({"listeners": ""}, "at least one listener"),
        ({"listeners": "A://localhost:1"}, "no protocol for listener A"),
        ({"listener.security.protocol.map": "A:SECRET"}, "expected NAME:PROTOCOL"),
        ({"listeners": "PLAINTEXT://[::1%]:9092"}, "has an invalid IPv6 address: ::1%"),
        ({"listeners": "PLAINTEXT://localhost:9092:9092"}, "has an invalid IPv6 address: localhost:9092"),
        ({"listeners": "PLAINTEXT://[fe80::1]:9092"}, r"name its interface, as in \[fe80::1%eth0\]"),
        ({"listeners": "PLAINTEXT://:1,SSL://:1"}, "must have a different port"),
        ({"advertised.listeners": "PLAINTEXT://[::]:1"}, "cannot be advertised"),
        ({"advertised.listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "must have a different name"),
    ],
)
def test_listeners_that_are_rejected(sets: dict[str, str], complaint: str) -> None:
    """`H04`, `C18`: rules of listeners and advertised listeners. One line an error, however many rules need them."""
    with pytest.raises(ConfigError, match=complaint) as raised:
        load(None, sets, {})
    [line] = str(raised.value).splitlines()
    *_, name = sets
    assert line.startswith(f"flag --set {name}: {name}: ")


def test_named_listeners_share_a_port_only_across_address_families() -> None:
    """`H04`: names are upper-cased and mapped; one IPv4 and one IPv6 address may share a port."""
    sets = {
        "listener.security.protocol.map": "inner:PLAINTEXT",
        "listeners": "inner://127.0.0.1:7000,PLAINTEXT://[::1]:7000",
        "advertised.listeners": "INNER://localhost:7001",
    }
    config = load(None, sets, {})
    assert [str(listener) for listener in config.bound_listeners] == [
        "INNER://127.0.0.1:7000",
        "PLAINTEXT://[::1]:7000",
    ]
    assert [str(listener) for listener in config.effective_advertised_listeners] == [
        "INNER://localhost:7001",
        "PLAINTEXT://[::1]:7000",
    ]
    with pytest.raises(ConfigError, match="must have a different port"):
        load(None, {**sets, "listeners": "inner://127.0.0.1:7000,PLAINTEXT://localhost:7000"}, {})


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])  # noqa: S104 - parsed, not bound
def test_all_interfaces_are_advertised_as_what_was_reached(host: str) -> None:
    """`C18`: the wildcard itself is never sent to a client."""
    listeners = f"PLAINTEXT://{host}:0,SSL://{host}:0"
    config = load(None, {"listeners": listeners, "insecure.listen": "true"}, {})
    assert all(each.is_wildcard for each in config.bound_listeners)
    assert [each.host for each in config.effective_advertised_listeners] == ["", ""]


TWO = {
    "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
    "listeners": "A://127.0.0.1:9092,B://127.0.0.1:9093",
}


@pytest.mark.parametrize(
    ("told", "addresses"),
    [
        (
            "A://internal.example:9092,B://external.example:9092",
            ["A://internal.example:9092", "B://external.example:9092"],
        ),
        ("A://:9092,B://one.example:0", ["A://:9092", "B://one.example:0"]),
        ("A://[::1%lo]:1,B://[fe80::1%eth0]:1", ["A://[::1]:1", "B://[fe80::1%eth0]:1"]),
        ("A://[2001:db8::7]:1,B://2001:db8::8:1", ["A://[2001:db8::7]:1", "B://[2001:db8::8]:1"]),
    ],
)
def test_c18_what_kafka_advertises_may_be_advertised(told: str, addresses: list[str]) -> None:
    """One port for several listeners, the host that a client has reached, an IPv6 address with a zone."""
    config = load(None, {**TWO, "advertised.listeners": told}, {})
    assert [str(each) for each in config.effective_advertised_listeners] == addresses


def test_a04_an_ipv6_address_may_have_a_zone() -> None:
    """It stays where it means something: of a link-local address."""
    sets = {**TWO, "listeners": "A://[::1%lo]:9092,B://[fe80::1%eth0]:9093", "insecure.listen": "true"}
    assert [each.host for each in load(None, sets, {}).bound_listeners] == ["::1", "fe80::1%eth0"]
    assert load(None, {"listeners": "PLAINTEXT://[::1%lo]:9092"}, {}).bound_listeners[0].is_loopback


def test_node_id_and_broker_id_are_one() -> None:
    assert load(None, {"broker.id": "7"}, {}).node_id == 7
    assert load(None, {"node.id": "8"}, {}).broker_id == 8
    with pytest.raises(ConfigError, match=r"is 8 but broker\.id is 7"):
        load(None, {"node.id": "8", "broker.id": "7"}, {})


@pytest.mark.parametrize(
    ("sets", "complaint"),
    [
        ({"pipeline.max": "4"}, "pipeline.resume: must not be above pipeline.max"),
        ({"log.dirs": "a,b"}, "log.dirs: must name exactly one directory"),
        ({"log.dirs": ""}, "log.dirs: must name exactly one directory"),
        ({"queued.max.request.bytes": "5"}, "Value must be -1 or at least 1048576"),
        (
            {"log.cleaner.max.compaction.lag.ms": "5", "log.cleaner.min.compaction.lag.ms": "6"},
            "not be above",
        ),
        ({"compression.gzip.level": "0"}, "Value must be between 1 and 9 or equal to -1"),
        ({"log.segment.bytes": "100"}, "Value must be at least 1048576"),
    ],
)
def test_values_that_do_not_go_together(sets: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load(None, sets, {})


def test_data_directory_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = load(None, {"log.dirs": "data"}, {})
    homeless = load(None, {}, {})
    monkeypatch.chdir("/")
    assert config.data_dir == tmp_path / "data"
    assert homeless.data_dir == tmp_path / "rotunda-data"


def test_data_are_in_the_users_directory_unless_some_are_here_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    environment = {"HOME": "/home/kim", "XDG_DATA_HOME": "/home/kim/data"}
    assert load(None, {}, environment).data_dir == Path("/home/kim/data/rotunda")
    # A relative one is ignored, by its specification.
    for value in ("", "data"):
        found = load(None, {}, {**environment, "XDG_DATA_HOME": value}).data_dir
        assert found == Path("/home/kim/.local/share/rotunda")
    (tmp_path / "rotunda-data").mkdir()
    config = load(None, {}, environment)
    assert config.data_dir == tmp_path / "rotunda-data"
    assert ("log.dirs", str(tmp_path / "rotunda-data")) in {(name, value) for name, value, _ in config.described()}


def test_arena_fits_a_small_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """`B14`: -1 fits the machine, any other value is used as it is."""
    mebibyte = 1024 * 1024
    monkeypatch.setattr("rotunda.broker.config.arena.free_shared_memory_bytes", lambda: 20 * mebibyte)
    assert arena_bytes(-1) == 10 * mebibyte
    monkeypatch.setattr("rotunda.broker.config.arena.free_shared_memory_bytes", lambda: 2000 * mebibyte)
    assert arena_bytes(-1) == 32 * mebibyte
    assert arena_bytes(99 * mebibyte) == 99 * mebibyte


def test_arena_leaves_the_rest_its_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users row 27: many processes fit Docker's 64 MiB as well."""
    mebibyte = 1024 * 1024
    monkeypatch.setattr("rotunda.broker.config.arena.free_shared_memory_bytes", lambda: 64 * mebibyte)
    assert arena_bytes(-1, 20 * mebibyte) == 32 * mebibyte
    assert arena_bytes(-1, 36 * mebibyte) == 28 * mebibyte
    # Larger requests use their processor's spill area then.
    assert arena_bytes(-1, 60 * mebibyte) == 4 * mebibyte
    assert arena_bytes(-1, 70 * mebibyte) == mebibyte


def test_dynamic_values_lie_over_static_ones() -> None:
    static = load(None, {"message.max.bytes": "5"}, {})
    config = static.with_dynamic({"message.max.bytes": "7"}, {"message.max.bytes": "6", "compression.type": "lz4"})
    assert (static.message_max_bytes, config.message_max_bytes, config.compression_type) == (5, 7, "lz4")
    assert described(config)["message.max.bytes"].synonyms == (
        Synonym("message.max.bytes", "7", DYNAMIC_BROKER_CONFIG),
        Synonym("message.max.bytes", "6", DYNAMIC_DEFAULT_BROKER_CONFIG),
        Synonym("message.max.bytes", "5", STATIC_BROKER_CONFIG),
        Synonym("message.max.bytes", "1048588", DEFAULT_CONFIG),
    )
    assert [(entry.name, entry.value) for entry in describe_cluster_default(config)] == [
        ("compression.type", "lz4"),
        ("message.max.bytes", "6"),
        ("min.insync.replicas", "1"),
    ]


@pytest.mark.parametrize(
    ("sets", "cluster_wide", "own", "synonyms"),
    [
        ({}, {}, {}, [("1", DYNAMIC_DEFAULT_BROKER_CONFIG), ("1", DEFAULT_CONFIG)]),
        (
            {"min.insync.replicas": "1"},
            {},
            {},
            [("1", DYNAMIC_DEFAULT_BROKER_CONFIG), ("1", STATIC_BROKER_CONFIG), ("1", DEFAULT_CONFIG)],
        ),
        (
            {},
            {"min.insync.replicas": "3"},
            {},
            [("3", DYNAMIC_DEFAULT_BROKER_CONFIG), ("1", DEFAULT_CONFIG)],
        ),
        (
            {},
            {},
            {"min.insync.replicas": "4"},
            [("4", DYNAMIC_BROKER_CONFIG), ("1", DYNAMIC_DEFAULT_BROKER_CONFIG), ("1", DEFAULT_CONFIG)],
        ),
    ],
)
def test_the_cluster_has_a_value_of_min_insync_replicas_from_the_beginning(
    sets: dict[str, str], cluster_wide: dict[str, str], own: dict[str, str], synonyms: list[tuple[str, int]]
) -> None:
    """As Kafka 4.4 responds in a new cluster, whose replicas are eligible by what they have written (ELR)."""
    config = load(None, sets, {}).with_dynamic(own, cluster_wide)
    told = [(each.value, each.source) for each in described(config)["min.insync.replicas"].synonyms]
    assert told == synonyms
    [default] = describe_cluster_default(config)
    of_cluster = next(value for value, source in synonyms if source == DYNAMIC_DEFAULT_BROKER_CONFIG)
    assert (default.name, default.value, default.source) == (
        "min.insync.replicas",
        of_cluster,
        DYNAMIC_DEFAULT_BROKER_CONFIG,
    )


def test_what_kafka_says_of_one_node_is_accepted_and_more_is_not() -> None:
    """Row 15 of users.md: the settings that a Kafka of one broker requires."""
    names = (
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr",
    )
    assert [load(None, dict.fromkeys(names, "1"), {}).value(name) for name in names] == [1, 1, 1]
    with pytest.raises(ConfigError) as rejected:
        load(None, dict.fromkeys(names, "3"), {})
    assert str(rejected.value).count("Value must be no more than 1: a single broker has one replica") == 3
    with pytest.raises(ConfigError, match=r"min.insync.replicas: is 2, but a single broker"):
        load(None, {"min.insync.replicas": "2"}, {})


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        ({"num.partitions": "2"}, "Cannot update these configs dynamically: \\[num.partitions]"),
        ({"message.max.bytes": "-1"}, "Value must be at least 0"),
        ({"nonsense": "1"}, "unknown setting nonsense"),
    ],
)
def test_dynamic_values_that_are_rejected(overrides: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load(None, {}, {}).with_dynamic(overrides)


def test_every_broker_setting_is_described() -> None:
    entries = described(load(None, {"num.partitions": "3"}, {}))
    assert set(entries) == {*BROKER_KEYS, *kafka_settings()}
    assert all(entry.documentation for entry in entries.values())
    partitions = entries["num.partitions"]
    assert (partitions.value, partitions.source, partitions.config_type) == ("3", STATIC_BROKER_CONFIG, 3)
    assert (partitions.read_only, partitions.sensitive) == (True, False)
    assert not entries["message.max.bytes"].read_only


@pytest.mark.parametrize("key", BROKER_KEYS.values(), ids=lambda key: key.name)
def test_the_page_says_where_a_setting_can_be_changed_while_the_broker_runs(key: Key) -> None:
    """Column live: yes, broker, listener or no, as a change is accepted or rejected."""
    (line,) = [line for line in BROKER_TABLE if line.startswith(f"| `{key.name}` | ")]
    config, own = load(None, {}, {}), f"listener.name.plaintext.{key.name}"
    told, text = set(line.split(" | ")[2].split(", ")), render(key.default) or ""
    if told == {"no"}:
        with pytest.raises(ConfigError, match="they need a restart"):
            config.with_dynamic({key.name: text})
    elif told == {"listener"}:
        with pytest.raises(ConfigError, match="only per-listener"):
            config.with_dynamic({key.name: text})
    else:
        assert told <= {"yes", "broker", "listener"}
        assert key_of(key.name).dynamic
        assert key.per_broker != ("yes" in told)
    is_taken = split(own) == ("plaintext", key.name) and key_of(own).dynamic
    assert is_taken == ("listener" in told)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (1.0, "1.0"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (1e7, "1.0E7"),
        (2.5e-4, "2.5E-4"),
    ],
)
def test_numbers_are_written_as_java_writes_them(value: float, text: str) -> None:
    assert render(value) == text


def test_synonyms_of_a_setting_are_its_fallbacks() -> None:
    config = load(None, {"log.retention.ms": "9", "log.retention.hours": "1"}, {})
    assert described(config)["log.retention.ms"].synonyms == (
        Synonym("log.retention.ms", "9", STATIC_BROKER_CONFIG),
        Synonym("log.retention.hours", "1", STATIC_BROKER_CONFIG),
        Synonym("log.retention.hours", "168", DEFAULT_CONFIG),
    )


def test_properties_are_read_as_java_reads_them() -> None:
    text = (
        "# comment\n! comment\n\n  a=1\nb: 2\nc 3\nd\ne\\ f = x\\=y \\\n    and more\ng=\\u00e9\\t\\\\\nempty=\nlast=\\"
    )
    assert parse_properties(text) == [
        Property("a", "1", 4),
        Property("b", "2", 5),
        Property("c", "3", 6),
        Property("d", "", 7),
        Property("e f", "x=y and more", 8),
        Property("g", "é\t\\", 10),
        Property("empty", "", 11),
        Property("last", "", 12),
    ]


def test_the_sample_file_loads_with_every_setting_uncommented(tmp_path: Path) -> None:
    lines = sample_properties().splitlines()
    settings = [line.removeprefix("#") for line in lines if line.startswith("#") and not line.startswith("# ")]
    assert len(settings) == len(BROKER_KEYS)
    config = load_file(tmp_path, "\n".join(settings))
    default = load(None, {"num.network.threads": "1", "num.io.threads": "1", "log.dirs": "rotunda-data"}, {})
    assert config == default


@pytest.mark.parametrize(
    "text", ["10.0.0.1", "host:", ":5", "host:5,other", "host:five", "ho st:5", "host:-1", "h:9999999999"]
)
def test_overrides_of_connections_have_a_form(text: str) -> None:
    """A15."""
    with pytest.raises(ConfigError, match="host:number"):
        load(None, {"max.connections.per.ip.overrides": text}, {})
    load(None, {"max.connections.per.ip.overrides": "10.0.0.1:5, ::1:7"}, {})


def test_a15_no_connection_for_an_address_needs_those_that_may() -> None:
    with pytest.raises(ConfigError, match=r"max\.connections\.per\.ip: 0 needs"):
        load(None, {"max.connections.per.ip": "0"}, {})
    assert load(None, {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "h:1"}, {})


def test_no_connections_at_all_are_a_limit_at_the_start_only() -> None:
    config = load(None, {"max.connections": "0"}, {})
    assert config.max_connections == 0
    with pytest.raises(ConfigError, match="at least 1 while the broker runs"):
        config.with_dynamic({"max.connections": "0"})
    with pytest.raises(ConfigError, match="at least 1 while the broker runs"):
        config.with_dynamic({}, {"max.connections": "0"})
    assert config.with_dynamic({"max.connections": "5"}).max_connections == 5


def test_a09_a16_limits_of_a_listener_are_for_one_that_there_is() -> None:
    """At the start; while the broker runs it may be a future one. Its name is in lower case, as in Kafka."""
    name = "listener.name.plaintext.max.connections"
    assert load(None, {name: "5"}, {}).of_listener("PLAINTEXT", "max.connections") == 5
    assert load(None, {}, {"KAFKA_LISTENER_NAME_PLAINTEXT_MAX_CONNECTIONS": "6"}).value(name) == 6
    with pytest.raises(ConfigError, match="unknown listener other; known: plaintext"):
        load(None, {"listener.name.other.max.connections": "5"}, {})
    with pytest.raises(ConfigError, match=r"unknown setting listener\.name\.PLAINTEXT"):
        load(None, {"listener.name.PLAINTEXT.max.connections": "5"}, {})
    with pytest.raises(ConfigError, match="unknown listener OTHER; known: PLAINTEXT"):
        load(None, {"inter.broker.listener.name": "OTHER"}, {})
    running = load(None, {name: "5"}, {}).with_dynamic({"listener.name.other.max.connections": "7"}, {name: "9"})
    assert (running.of_listener("other", "max.connections"), running.value(name)) == (7, 9)
    described_name = described(running)[name]
    assert [each.name for each in described_name.synonyms] == [name, name, "max.connections"]


def test_limits_of_a_listener_in_a_file_that_is_read_again(tmp_path: Path) -> None:
    name = "listener.name.plaintext.max.connection.creation.rate"
    config = load_file(tmp_path, f"{name}=5\nmax.connection.creation.rate=50\n")
    assert config.with_file(config.file_texts) == config
    changed = config.with_file({**config.file_texts, name: "6"})
    assert changed != config
    assert changed.value(name) == 6
    ended = config.with_file({"max.connection.creation.rate": "50"})
    assert ended != config
    assert ended.value(name) == 50
