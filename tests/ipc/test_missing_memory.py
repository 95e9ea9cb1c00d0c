"""Tests of the missing shared memory when the number of processes grows (`A28`, `E04`)."""

from pathlib import Path

import pytest

from rotunda.broker.errors import ApiError
from rotunda.broker.ipc import missing_memory
from rotunda.broker.ipc.missing_memory import missing_bytes
from rotunda.broker.metadata.store.metadata_file import EVERY_BROKER
from rotunda.broker.metadata.thread_counts import Room, check_change
from rotunda.broker.supervisor.process_memory import ProcessMemory
from tests.support.stepped_broker import SteppedBroker


def test_a28_e04_what_the_most_processes_need_is_what_is_left_out_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = SteppedBroker(tmp_path, handlers=2)
    try:
        context = broker.context
        started = context.started_processors, context.started_handlers
        later = ProcessMemory(context.channel_shape, started).later_bytes
        assert later > 0
        most = context.most_processors, context.most_handlers
        monkeypatch.setattr(missing_memory, "free_shared_memory_bytes", lambda: 0)
        assert missing_bytes(context, *started) == 0
        assert missing_bytes(context, *most) == later
        monkeypatch.setattr(missing_memory, "free_shared_memory_bytes", lambda: later)
        assert missing_bytes(context, *most) == 0
    finally:
        broker.close()


@pytest.mark.parametrize("name", ["num.network.threads", "num.io.threads"])
def test_a28_e04_a_resize_beyond_the_memory_is_rejected(tmp_path: Path, name: str) -> None:
    """The rejected change stores nothing; smaller numbers and other settings are accepted."""
    broker = SteppedBroker(tmp_path, handlers=2, processors=2)
    try:
        metadata = broker.parts(broker.context.handlers).metadata
        room = Room(8, 8, lambda processors, handlers: 1 if max(processors, handlers) > 2 else 0)
        with pytest.raises(ApiError, match=f"{name}=3: /dev/shm lacks 1 bytes"):
            check_change(metadata, {EVERY_BROKER: {name: "3"}}, room)
        check_change(metadata, {EVERY_BROKER: {name: "1", "log.retention.ms": "3600000"}}, room)
    finally:
        broker.close()
