"""The page's port: the default one falls back, a configured one does not, and without the extra there is none."""

import logging
import re
import socket

import pytest

from rotunda.broker.config.broker_config import load
from rotunda.broker.errors import BootFailed, ConfigError
from rotunda.broker.supervisor import status_listener
from rotunda.broker.supervisor.status_listener import bind_status_page, status_url

TOKEN = "a-token-of-the-page"  # noqa: S105


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> int:
    """Return a port that cannot be bound."""
    real = status_listener._bind

    def refuse(host: str, port: int) -> socket.socket:
        if port == 8080:
            raise OSError(98, "in use")
        return real(host, port)

    monkeypatch.setattr(status_listener, "_bind", refuse)
    return 8080


def test_the_default_port_gives_way(taken: int, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        found = bind_status_page(load(None, {}, {}))
    assert found is not None
    with found:
        port = found.getsockname()[1]
        assert port not in {0, taken}
        assert f"using port {port} instead" in caplog.text
        assert status_url(found) == f"http://127.0.0.1:{port}/"


def test_a_port_that_was_asked_for_does_not(taken: int):
    with pytest.raises(BootFailed) as failure:
        bind_status_page(load(None, {"status.port": str(taken)}, {}))
    assert failure.value.exit_code == 4


def test_without_the_extra_the_log_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(status_listener, "_NEEDED", ("no_such_package",))
    with caplog.at_level(logging.WARNING):
        assert bind_status_page(load(None, {}, {})) is None
    assert "no_such_package is not installed; run `pip install no_such_package`" in caplog.text
    assert status_url(None) == ""


def test_a_page_that_is_switched_off_binds_nothing():
    assert bind_status_page(load(None, {"status.page.enable": "false"}, {})) is None


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({}, "not encrypted: set status.ssl.enable=true, nor protected: set status.token"),
        ({"status.token": TOKEN}, "not encrypted: set status.ssl.enable=true; or allow it with insecure.listen=true"),
        ({"status.ssl.enable": "true"}, "not protected: set status.token, or configure a listener with SASL"),
        ({"insecure.listen": "true"}, None),
        ({"status.ssl.enable": "true", "status.token": TOKEN}, None),
        ({"status.page.enable": "false"}, None),
    ],
)
def test_other_machines_only_encrypted_and_protected(settings: dict[str, str], complaint: str | None):
    """Row 23."""
    everywhere = {"status.host": "0.0.0.0", **settings}  # noqa: S104
    if complaint is None:
        load(None, everywhere, {})
        return
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        load(None, everywhere, {})
