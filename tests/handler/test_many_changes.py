"""Thousands of changes in one request: every process applies them as they are made, not all at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rotunda.broker.apis.cluster.controller_access import ANNOUNCED_AT_ONCE
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.scheduling import slices
from tests.support.call_clock import CallClock, run_once
from tests.support.stepped_broker import SteppedBroker

CHANGES = 500
CONTROLLER = 1
GROUP = 32


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SteppedBroker]:
    made = SteppedBroker(tmp_path_factory.mktemp("changes"), handlers=1, clock=CallClock)
    # A process without any change reads everything at first, like at its start.
    made.create("there", 1)
    made.settle()
    yield made
    made.close()


def quotas() -> dict[str, Any]:
    ops = [{"key": "producer_byte_rate", "value": 1e6, "remove": False}]
    entities = [[{"entity_type": "client-id", "entity_name": f"c{number}"}] for number in range(CHANGES)]
    return {"entries": [{"entity": entity, "ops": ops} for entity in entities], "validate_only": False}


def configs() -> dict[str, Any]:
    change = [{"name": "consumer.session.timeout.ms", "config_operation": 0, "value": "46000"}]
    names = [f"group-{number}" for number in range(CHANGES)]
    resources = [{"resource_type": GROUP, "resource_name": name, "configs": change} for name in names]
    return {"resources": resources, "validate_only": False}


def credentials() -> dict[str, Any]:
    secret = {"mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"p" * 32}
    return {"deletions": [], "upsertions": [{"name": f"u{number}", **secret} for number in range(CHANGES)]}


@pytest.mark.parametrize(
    ("key", "version", "request_of"),
    [
        (ApiKey.ALTER_CLIENT_QUOTAS, 1, quotas),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, configs),
        (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, credentials),
    ],
)
def test_changes_of_some_slices_are_applied_everywhere_before_the_next_ones(
    broker: SteppedBroker, monkeypatch: pytest.MonkeyPatch, key: ApiKey, version: int, request_of: Any
) -> None:
    """A single announcement at the end would need one long turn to read, with all clients' quotas recomputed."""
    monkeypatch.setattr(slices, "BUDGET_NS", 1)
    frame = codec.encode_request(key, version, 7, "client", request_of())[4:]
    sent = broker.client().send_frame(key, version, frame)
    steps = []
    while not sent.answers:
        before = broker.parts(0).metadata.version
        for target in (CONTROLLER, 0):
            run_once(broker, target)
        broker.drain()
        steps.append(broker.parts(0).metadata.version - before)
        assert broker.controller.version - broker.parts(0).metadata.version < ANNOUNCED_AT_ONCE
    assert broker.parts(0).metadata.version == broker.controller.version
    assert max(steps) <= ANNOUNCED_AT_ONCE < sum(steps)
    broker.forget_clients()
