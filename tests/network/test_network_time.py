"""The time that a processor spends on each client, charged to the client's request quota (`B29`)."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

from rotunda.broker.config.broker_config import load
from rotunda.broker.metadata.configs.quota_entities import CLIENT_ID, USER, ClientQuotas
from rotunda.broker.network.accounting.network_time import EVERY, NetworkTime
from rotunda.broker.quotas.quota_manager import QuotaManager
from rotunda.broker.security.session import ANONYMOUS_USER
from rotunda.shm.tables.quota_tables import QuotaTables

CONFIG = load(None, {}, {})
MS = 1_000_000
START_NS = 1_000_000 * MS
LIMITED: ClientQuotas = {((CLIENT_ID, "a"),): {"request_percentage": 1.0 * EVERY}}


def channel(client_id: str) -> Any:
    return SimpleNamespace(user=ANONYMOUS_USER, client_prefix=len(client_id).to_bytes(2, "big") + client_id.encode())


class Network:
    """A processor's and a handler's view of the same tables; each reading of the clock advances it by 10 ms."""

    def __init__(self, quotas: ClientQuotas) -> None:
        windows = CONFIG.quota_window_num
        tables = QuotaTables(memoryview(bytearray(QuotaTables.bytes_needed(windows, 2))), windows, 2)
        self.ticks = itertools.count(START_NS, 10 * MS)
        self.processor, self.handler = (QuotaManager(tables, owner, CONFIG, ("PLAINTEXT",)) for owner in range(2))
        for each in (self.processor, self.handler):
            each.follow(quotas, CONFIG)
        self.time = NetworkTime(self.processor, lambda: next(self.ticks))

    def throttle_ms(self, client_id: str) -> int:
        """Return the throttle time of a request a second later that has no cost itself."""
        for _ in range(100):
            next(self.ticks)
        sensors = self.handler.of_client(ANONYMOUS_USER, client_id)
        assert sensors is not None
        now_ns = next(self.ticks)
        self.handler.book.mark_ns = now_ns
        return sensors.record_response(3, 0, now_ns)


def test_b29_time_of_a_channel_is_charged_to_its_client() -> None:
    """B29: recorded by the processor without checking, and visible to the target of the next request."""
    network = Network(LIMITED)
    a, b = channel("a"), channel("b")
    for _ in range(EVERY):
        assert list(network.time.of_each([a] * 9)) == [a] * 9
    assert network.throttle_ms("a") == 0
    for _ in range(EVERY):
        assert list(network.time.of_each([a, b] * 4)) == [a, b] * 4
    assert network.throttle_ms("a") > 0
    assert network.throttle_ms("b") == 0


def test_b29_so_is_the_time_of_lone_responses() -> None:
    network = Network(LIMITED)
    finished: list[tuple[Any, Any, int]] = []
    finish = [network.time.of_lone(lambda *each: finished.append(each)) for _ in range(EVERY)][-1]
    for _ in range(12):
        finish(channel("a"), (b"", 0), next(network.ticks))
    assert len(finished) == 12
    assert network.throttle_ms("a") > 0


def test_e10_nothing_is_measured_while_no_quota_is_for_time() -> None:
    network = Network({((USER, None),): {"producer_byte_rate": 1.0}})
    channels = [channel("a")]
    assert all(network.time.of_each(channels) is channels for _ in range(EVERY))

    def finish(*_: Any) -> None:
        raise AssertionError

    assert network.time.of_lone(finish) is finish
    assert next(network.ticks) == START_NS
