"""Telemetry requests of clients: subscriptions, the order of checks, and the values that are kept."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rotunda.broker.records.compression import compress
from rotunda.broker.security.session import Session
from rotunda.broker.steps import finished
from rotunda.broker.telemetry import receiver as module
from rotunda.broker.telemetry.instances import MOST_INSTANCES
from rotunda.broker.telemetry.receiver import TelemetryReceiver
from rotunda.broker.telemetry.series import MOST_SERIES
from tests.support.fakes import FakeClock
from tests.support.otlp import CUMULATIVE, gauge, histogram, point, pushed, sum_of

ZERO, ONE, MINE, OTHER = (bytes(15) + bytes((last,)) for last in (0, 1, 7, 8))
INTERVAL_MS = 1000
ALL = {"all": {"metrics": "*", "interval.ms": str(INTERVAL_MS)}}
DATA = pushed(gauge("a", point(1.0)))


class Bench:
    """A receiver, and a client's requests to it."""

    def __init__(self, **configs: dict[str, str]) -> None:
        self.clock = FakeClock()
        self.metadata: Any = SimpleNamespace(
            version=1, client_metrics_configs=configs, broker_config=SimpleNamespace(telemetry_max_bytes=10_000)
        )
        self.ended: set[int] = set()
        self.software = ("", "")
        hosts: Any = SimpleNamespace(
            has_ended=lambda each: each in self.ended, of=lambda _: "/10.0.0.1", software_of=lambda _: self.software
        )
        self.recorded: list[str] = []
        self.receiver = TelemetryReceiver(
            self.metadata, hosts, self.clock, lambda _, points, __: self.recorded.extend(each.name for each in points)
        )
        self.connection_id = 5

    def _request(self) -> Any:
        return SimpleNamespace(connection_id=self.connection_id, client_id="me", session=Session("alice", ""))

    def get(self, instance_id: bytes = MINE) -> dict[str, Any]:
        body = SimpleNamespace(client_instance_id=instance_id)
        return self.receiver.subscription_of(self._request(), body)

    def push(self, instance_id: bytes = MINE, subscription_id: int | None = None, **fields: Any) -> int:
        """Push, with the subscription id of the instance if none is passed; return the error."""
        if subscription_id is None:
            known = [each for each in self.receiver.instances if each.instance_id == instance_id]
            subscription_id = known[0].subscription.subscription_id if known else 0
        body = {"terminating": False, "compression_type": 0, "metrics": DATA, **fields}
        asked = SimpleNamespace(client_instance_id=instance_id, subscription_id=subscription_id, **body)
        response: dict[str, int] = finished(self.receiver.push(self._request(), asked))
        return response["error_code"]

    def wait(self, ms: int = INTERVAL_MS) -> None:
        self.clock.advance_ms(ms)

    def change(self, **configs: dict[str, str]) -> None:
        """Change the subscriptions in place, as the metadata cache does."""
        self.metadata.client_metrics_configs.clear()
        self.metadata.client_metrics_configs.update(configs)
        self.metadata.version += 1

    def values(self) -> dict[str, tuple[float, int]]:
        [instance] = self.receiver.instances
        return {name: (value.value, value.samples) for name, _, value in instance.series}


def test_t03_t04_an_instance_gets_an_id_and_a_subscription() -> None:
    bench = Bench(**ALL)
    first, second = bench.get(ZERO), bench.get(ZERO)
    assert ZERO != first["client_instance_id"] != second["client_instance_id"] != ZERO
    mine = bench.get()
    assert mine["client_instance_id"] == MINE
    assert {name: mine[name] for name in mine if name not in {"client_instance_id", "subscription_id"}} == {
        "accepted_compression_types": (4, 3, 1, 2),
        "push_interval_ms": INTERVAL_MS,
        "telemetry_max_bytes": 10_000,
        "delta_temporality": True,
        "requested_metrics": ("*",),
    }
    assert -(2**31) <= mine["subscription_id"] < 2**31


def test_t05_t06_all_matching_subscriptions_are_united() -> None:
    bench = Bench(
        a={"metrics": "b.,a.", "match": "client_id=m.,client_source_address=10\\..*"},
        b={"metrics": "c.", "interval.ms": "5000", "match": "client_software_name=java"},
        c={"metrics": "*", "interval.ms": "100", "match": "client_id=m"},
    )
    found = bench.get(MINE)
    assert (found["requested_metrics"], found["push_interval_ms"]) == (("a.", "b."), 300_000)
    bench.software = ("java", "4.4.0")
    found = bench.get(OTHER)
    assert (found["requested_metrics"], found["push_interval_ms"]) == (("a.", "b.", "c."), 5000)
    bench.change()
    found = bench.get(ONE)
    assert (found["requested_metrics"], found["push_interval_ms"]) == ((), 300_000)


def test_t07_a_subscription_id_changes_with_what_is_asked_for_and_lasts() -> None:
    ids = {name: Bench(x=each).get()["subscription_id"] for name, each in {
        "a": {"metrics": "a"}, "again": {"metrics": "a"}, "b": {"metrics": "b"},
        "soon": {"metrics": "a", "interval.ms": "100"},
    }.items()}  # fmt: skip
    assert ids["a"] == ids["again"]
    assert len(set(ids.values())) == 3
    assert Bench(**ALL).get(OTHER)["subscription_id"] != Bench(**ALL).get()["subscription_id"]


def test_t08_a_client_asks_no_sooner_than_it_pushes() -> None:
    bench = Bench(**ALL)
    assert "error_code" not in bench.get()
    assert bench.get()["error_code"] == 89
    bench.wait()
    assert "error_code" not in bench.get()
    assert bench.push(subscription_id=4) == 117
    assert "error_code" not in bench.get(), "after an unknown subscription it may ask at once"
    assert bench.push() == 0, "a push after that may be early"
    assert bench.get()["error_code"] == 89


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"instance_id": ZERO}, 42),
        ({"instance_id": ONE}, 42),
        ({"subscription_id": 4, "compression_type": 9, "metrics": bytes(10_001)}, 117),
        ({"compression_type": 5, "metrics": bytes(10_001)}, 76),
        ({"metrics": bytes(10_001)}, 118),
        ({"metrics": b"\x0b"}, 87),
        ({"metrics": b"", "compression_type": 4}, 0),
        ({}, 0),
        *[({"metrics": compress(codec, DATA), "compression_type": codec}, 0) for codec in range(1, 5)],
        *[({"metrics": compress(codec, bytes(160_001)), "compression_type": codec}, 118) for codec in (1, 3, 4)],
    ],
)
def test_t09_a_push_is_checked_in_kafkas_order(fields: dict[str, Any], error: int) -> None:
    """T11: the payload is compressed as a whole, with any codec."""
    bench = Bench(**ALL)
    bench.get()
    assert bench.push(**fields) == error
    if not error:
        assert bench.values() == ({"a": (1.0, 1)} if fields.get("metrics", DATA) else {})
    if error in {117, 76, 118, 87}:
        assert bench.push() == 89, "it was a push all the same"
        assert bench.recorded == []


def test_t09_a_last_push_may_be_early_and_is_the_last() -> None:
    bench = Bench(**ALL)
    bench.get()
    assert [bench.push(), bench.push(), bench.push(subscription_id=4, terminating=True)] == [0, 89, 117]
    bench.wait()
    assert bench.push() == 42, "T10: that it ends is remembered although the push was rejected"
    bench.change(x={"metrics": "a", "interval.ms": "1000"})
    assert bench.push() == 117, "a changed subscription starts it anew"


def test_t12_an_unknown_instance_pushes_by_its_subscription_id() -> None:
    known = Bench(**ALL).get()["subscription_id"]
    assert Bench(**ALL).push(subscription_id=known) == 0
    bench = Bench(**ALL)
    assert bench.push(subscription_id=known + 1) == 117
    bench.change(x={"metrics": "a", "interval.ms": "1000"})
    assert bench.push(subscription_id=known) == 117, "after a change a push is never too early"


def test_t13_instances_end_with_their_connection_or_by_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(**ALL)
    bench.get()
    bench.connection_id = 6
    bench.get(OTHER)
    assert bench.receiver.gauges()["client_instances"] == 2
    bench.wait(5000)
    bench.ended.add(5)
    bench.receiver.drop_ended(bench.clock.monotonic_ns())
    assert [each.instance_id for each in bench.receiver.instances] == [OTHER]
    bench.wait(60_001)
    bench.receiver.drop_ended(bench.clock.monotonic_ns())
    assert bench.receiver.gauges() == {"client_instances": 0, "client_metrics_series": 0}
    monkeypatch.setattr("rotunda.broker.telemetry.instances.MOST_INSTANCES", 3)
    assert MOST_INSTANCES == 16_384
    for number in range(2, 7):
        bench.get(number.to_bytes(16, "big"))
    assert [each.instance_id[-1] for each in bench.receiver.instances] == [4, 5, 6]


def test_t14_an_id_of_two_connections_is_one_instance() -> None:
    """It lives as long as the connection of its last request."""
    bench = Bench(**ALL)
    bench.get()
    bench.connection_id = 6
    assert bench.push() == 0
    for connection_id, left in ((5, [MINE]), (6, [])):
        bench.ended.add(connection_id)
        bench.wait(5000)
        bench.receiver.drop_ended(bench.clock.monotonic_ns())
        assert [each.instance_id for each in bench.receiver.instances] == left


def test_t15_requests_are_counted_by_outcome() -> None:
    bench = Bench(**ALL)
    bench.get()
    assert [bench.push(), bench.push(), bench.get().get("error_code")] == [0, 89, 89]
    bench.wait()
    assert bench.push(subscription_id=4) == 117
    bench.get()
    assert bench.push(metrics=b"\x0b") == 87
    assert bench.receiver.counters() == {
        "client_metrics_pushes": 1,
        "client_metrics_throttled": 2,
        "client_metrics_unknown_subscriptions": 1,
        "client_metrics_rejected": 1,
    }
    [instance] = bench.receiver.instances
    assert instance.last_error == 87


def test_t16_values_are_kept_and_deltas_are_added_up() -> None:
    bench = Bench(**ALL)
    bench.get()
    data = pushed(
        gauge("g", point(float("nan")), point(4.5)),
        sum_of("s", point(3)),
        sum_of("c", point(3), temporality=CUMULATIVE),
        histogram("h", 5, 2.5),
    )
    for _ in range(2):
        assert bench.push(metrics=data) == 0
        bench.wait()
    assert bench.values() == {"g": (4.5, 1), "s": (6.0, 2), "c": (3.0, 1), "h": (5.0, 10)}
    assert bench.recorded == ["g", "s", "c", "h"] * 2
    assert bench.receiver.counters()["client_metrics_pushes"] == 2


def test_t17_the_values_of_an_instance_and_of_all_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(**ALL)
    bench.metadata.broker_config.telemetry_max_bytes = 1 << 20
    bench.get()
    many = [gauge(f"m{number}", point(1)) for number in range(MOST_SERIES + 1)]
    assert bench.push(metrics=pushed(*many)) == 87
    bench.wait()
    assert bench.push(metrics=pushed(*many[1:])) == 0
    bench.wait()
    assert bench.push(metrics=pushed(many[0])) == 87
    assert bench.receiver.gauges()["client_metrics_series"] == len(bench.values()) == MOST_SERIES
    monkeypatch.setattr(module, "MOST_SERIES_OF_ALL", MOST_SERIES)
    bench.get(OTHER)
    assert bench.push(OTHER) == 0
    assert bench.receiver.gauges()["client_metrics_series"] == 1, "those of the longest silent instance were dropped"
    assert bench.receiver.counters()["client_metrics_rejected"] == 2
