"""The walks drawn in `docs/architecture.md`: a handler calls the functions of each, in this order."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import pytest

from rotunda.broker.handler.request_handler import ALL_FAST_PATHS, FastPathSettings
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from tests.support.groups.requests import Member, broker_with_groups, groups_of
from tests.support.record_batches import record_batch
from tests.support.stepped_broker import Sent, SteppedBroker

PAGE: Final = Path(__file__).parents[2] / "docs" / "architecture.md"
GENERAL: Final = FastPathSettings(cache_bytes=0, have_fast_paths=False)


class Stop(NamedTuple):
    """A function, and the package of `broker/` that it is in, or `shm`."""

    room: str
    function: str


def drawn(name: str) -> tuple[list[Stop], str]:
    """Return the stops of a walk, and the line above its drawing."""
    found = re.search(rf"^(\*\*{name}[^`]*)```\n(.*?)\n```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert found, name
    stops: list[Stop] = []
    for line in found[2].splitlines():
        room, function = line[:13].strip(), line[13:].split("  ")[0].strip()
        if function:
            stops.append(Stop(room or stops[-1].room, function))
    return stops, found[1]


def entered(run: Callable[[], Any]) -> Iterator[Stop]:
    """Yield the functions of the broker that a call enters, in their order."""
    frames: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            frames.append((frame.f_code.co_filename, frame.f_code.co_qualname))

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    for path, function in frames:
        parts = Path(path).parts
        if "broker" in parts:
            yield Stop(parts[parts.index("broker") + 1], function)
        elif "shm" in parts:
            yield Stop("shm", function)


def produce(broker: SteppedBroker) -> Sent:
    """Send a Produce for one partition."""
    parts = [("topic", broker.owned_by("topic", 0)[0], record_batch([b"a"]))]
    broker.client().produce(parts)
    broker.settle()
    return broker.client().produce(parts)


def fetch(broker: SteppedBroker) -> Sent:
    """Send a Fetch of a record."""
    produce(broker)
    broker.settle()
    fetched = {
        "topic": "topic", "partitions": [{"partition": broker.owned_by("topic", 0)[0], "partition_max_bytes": 1000}],
    }  # fmt: skip
    fields = {"max_bytes": 1000, "session_epoch": -1, "topics": [fetched]}
    return broker.client().send_frame(ApiKey.FETCH, 12, codec.encode_request(ApiKey.FETCH, 12, 0, "any", fields)[4:])


def offset_commit(broker: SteppedBroker) -> Sent:
    """Send the first OffsetCommit of a member."""
    member = Member(broker, groups_of(broker, 0, 1)[0])
    member.join()
    fields = {
        "group_id": member.group_id, "member_id": member.member_id,
        "generation_id_or_member_epoch": member.generation,
        "topics": [{"name": "topic", "partitions": [{"committed_offset": 7}]}],
    }  # fmt: skip
    frame = codec.encode_request(ApiKey.OFFSET_COMMIT, 9, 0, "any", fields)[4:]
    return broker.client().send_frame(ApiKey.OFFSET_COMMIT, 9, frame)


@pytest.mark.parametrize(
    ("name", "send", "fast_paths"),
    [("Produce", produce, GENERAL), ("Fetch", fetch, GENERAL), ("OffsetCommit", offset_commit, ALL_FAST_PATHS)],
)
def test_a_handler_calls_the_functions_that_are_drawn(
    tmp_path: Path, name: str, send: Callable[[SteppedBroker], Sent], fast_paths: FastPathSettings
) -> None:
    common, _ = drawn("Every request")
    own, heading = drawn(name)
    rooms = {stop.room for stop in (*common, *own)}
    assert f": {len(common) + len(own)} stops, {len(rooms)} rooms" in heading
    with broker_with_groups(tmp_path / "broker", {"topic": 4}, fast_paths=fast_paths) as broker:
        sent = send(broker)
        walk = list(entered(broker.handler(sent.target).run_once))
    assert set(common) <= set(walk)
    ahead = iter(walk)
    for stop in own:
        assert stop in ahead, f"{stop} is not called, or not in this order"
