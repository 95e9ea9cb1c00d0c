"""flush.messages takes effect when set: from then on Produce is acknowledged after the records are on disk."""

from __future__ import annotations

import os

import pytest

from rotunda.broker.metadata.configs.config_changes import BROKER, TOPIC
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import SteppedBroker, produced

#: The setting of one topic, and the default of all.
OF_A_TOPIC, OF_ALL = (TOPIC, "topic", "flush.messages"), (BROKER, "", "log.flush.interval.messages")


@pytest.mark.parametrize("where", [OF_A_TOPIC, OF_ALL], ids=lambda where: str(where[2]))
def test_flush_messages_is_obeyed_as_soon_as_it_is_set(
    stepped: SteppedBroker, monkeypatch: pytest.MonkeyPatch, where: tuple[int, str, str]
) -> None:
    synced: list[int] = []
    real = os.fdatasync

    def sync(fd: int) -> None:
        synced.append(fd)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", sync)
    client = stepped.client()
    (partition, *_) = stepped.owned_by("topic", 0)

    def syncs_of_a_produce() -> int:
        synced.clear()
        sent = client.produce([("topic", partition, record_batch([b"record"]))])
        stepped.settle()
        assert [error for error, _ in produced(sent)] == [0]
        return len(synced)

    assert syncs_of_a_produce() == 0
    stepped.set_config(*where, "1")
    assert syncs_of_a_produce() == 1
    stepped.set_config(*where, "2")
    assert [syncs_of_a_produce(), syncs_of_a_produce()] == [0, 1]
    stepped.set_config(*where, None)
    assert syncs_of_a_produce() == 0
