"""Requests to the status page of a whole broker, without TLS."""

import http.client
from contextlib import closing
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from rotunda.broker.runtime.run_dir import read as run_dir_record
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s


def address(broker: BrokerProcess) -> tuple[str, int]:
    """Return the address of the page."""
    return _address_of(broker.run_dir, broker.pid())


@cache
def _address_of(run_dir: Path, pid: int) -> tuple[str, int]:
    record = run_dir_record(run_dir)
    assert record is not None
    assert record.pid == pid
    url = urlsplit(record.status_url)
    return url.hostname or "", url.port or 0


def ask(broker: BrokerProcess, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body of a response."""
    with closing(http.client.HTTPConnection(*address(broker), timeout=deadline_s())) as connection:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()


def page_text(broker: BrokerProcess, path: str) -> tuple[int, str]:
    """Return status and text of a response."""
    code, _, body = ask(broker, path)
    return code, body.decode()
