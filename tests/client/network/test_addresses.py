"""Names of brokers to addresses."""

from __future__ import annotations

import socket

import pytest

from rotunda.broker.client.network.addresses import Address, HostAndPort, parse_bootstrap, parse_host_and_port, resolve
from rotunda.broker.client.network.network_config import CANONICAL_BOOTSTRAP, USE_ALL_DNS_IPS
from rotunda.broker.errors import ConfigError


def look_up(host: str) -> list[Address]:
    if host == "nowhere":
        raise socket.gaierror("not known")
    return [Address(socket.AF_INET, "127.0.0.1")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("broker:9092", ("broker", 9092)),
        (" 127.0.0.1:1 ", ("127.0.0.1", 1)),
        ("[::1]:9092", ("::1", 9092)),
        ("PLAINTEXT://broker.example.org:65535", ("broker.example.org", 65535)),
        ("my_host-2:9092", ("my_host-2", 9092)),
    ],
)
def test_g02_entries_of_bootstrap_servers(text: str, expected: tuple[str, int]) -> None:
    assert parse_host_and_port(text) == expected


@pytest.mark.parametrize("text", ["broker", "broker:", ":9092", "broker:port", "broker:0", "broker:65536", "a:1:2"])
def test_g02_an_invalid_address_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        parse_bootstrap([text], USE_ALL_DNS_IPS, look_up)


def test_g02_names_without_an_address_are_left_out_as_long_as_there_are_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert parse_bootstrap(["nowhere:1", "b:2", "", "b:2"], USE_ALL_DNS_IPS, look_up) == (HostAndPort("b", 2),)
    assert "nowhere cannot be resolved" in caplog.text
    with pytest.raises(ConfigError, match="cannot resolve any of nowhere:1"):
        parse_bootstrap(["nowhere:1"], USE_ALL_DNS_IPS, look_up)
    with pytest.raises(ConfigError, match="is empty"):
        parse_bootstrap([], USE_ALL_DNS_IPS, look_up)


def test_g02_canonical_names_are_used_for_all_addresses_of_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    two = [Address(socket.AF_INET, "10.0.0.1"), Address(socket.AF_INET, "10.0.0.2")]
    monkeypatch.setattr(socket, "getfqdn", lambda host: f"broker-{host[-1]}.example.org")
    found = parse_bootstrap(["brokers:9092"], CANONICAL_BOOTSTRAP, lambda _: two)
    assert found == (HostAndPort("broker-1.example.org", 9092), HostAndPort("broker-2.example.org", 9092))


def test_g29_all_addresses_of_a_host_are_found_ipv4_first() -> None:
    found = resolve("localhost")
    assert Address(socket.AF_INET, "127.0.0.1") in found
    families = [address.family == socket.AF_INET for address in found]
    assert families == sorted(families, reverse=True)
    assert len(found) == len(set(found))


@pytest.mark.parametrize("host", ["a..b", "a" * 64])
def test_g02_a_name_that_cannot_be_one_is_like_one_that_dns_does_not_know(host: str) -> None:
    with pytest.raises(ConfigError, match="cannot resolve any of"):
        parse_bootstrap([f"{host}:1"], USE_ALL_DNS_IPS)
