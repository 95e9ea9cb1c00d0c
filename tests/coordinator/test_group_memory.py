"""The memory of groups: counted on every change, subtracted on removal, and bounded."""

import pytest

from rotunda.broker.coordinator import group_memory
from rotunda.broker.coordinator.classic.group import ClassicGroup
from rotunda.broker.coordinator.group import JoinResult
from rotunda.broker.coordinator.group_memory import COUNT_MS, MEMBER_BYTES, GroupMemory, shard_sizes
from rotunda.broker.coordinator.offsets.commits import CommitTime, apply_commit
from rotunda.broker.coordinator.offsets.offsets import OFFSET_BYTES
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.primitives import ZERO_TOPIC_ID
from tests.support.groups.coordinator import Coordinator, commit_part
from tests.support.groups.members import join

MB = 1_000_000


class Bench:
    """A coordinator of classic groups with a limit to their memory."""

    def __init__(self) -> None:
        self.coordinator = Coordinator()
        self.limit_bytes = MB
        shard = self.coordinator.shard
        self.memory = GroupMemory(lambda: self.limit_bytes, lambda: shard_sizes([shard]), self.coordinator.timers)
        shard.admit = self.memory.admit

    def join(self, group_id: str, metadata_bytes: int, member_id: str = "") -> JoinResult:
        """Join a member; return the response."""
        protocols = (("range", bytes(metadata_bytes)),)
        responses = join(self.coordinator, member_id, protocols, version=3, group_id=group_id)
        self.coordinator.run_once()
        [response] = responses
        return response

    def commit(self, metadata: str, partition: int = 0) -> int:
        """Commit an offset; return the error."""
        [response] = apply_commit(
            self.coordinator.shard,
            "simple",
            ("topic", ZERO_TOPIC_ID, 100),
            [commit_part(partition, 5, metadata)],
            CommitTime(0),
            [],
        )
        return response["error_code"]


@pytest.fixture
def bench() -> Bench:
    """Return a coordinator with a limit of 1 MB for its groups."""
    return Bench()


def test_a_member_for_which_there_is_no_room_is_rejected(bench: Bench, caplog: pytest.LogCaptureFixture):
    codes = [bench.join(f"group-{number}", 300_000).error_code for number in range(6)]
    assert codes == [0, 0, 0, *[int(ErrorCode.GROUP_MAX_SIZE_REACHED)] * 3]
    assert bench.memory.rejections == 3
    assert bench.memory.used_bytes <= MB
    # A single log line for all of them, with the size and the setting.
    [line] = [record.getMessage() for record in caplog.records if "rejected" in record.getMessage()]
    assert "group-3" in line
    assert "group.state.max.bytes" in line


def test_a_departure_makes_room(bench: Bench):
    assert bench.join("first", 900_000).error_code == 0
    assert bench.join("second", 900_000).error_code == int(ErrorCode.GROUP_MAX_SIZE_REACHED)
    # Wait for the end of its session.
    bench.coordinator.advance_ms(11_000)
    bench.coordinator.advance_ms(COUNT_MS)
    assert bench.memory.used_bytes < 100_000
    assert bench.join("second", 900_000).error_code == 0


def test_a_member_that_joins_again_needs_no_more_memory(bench: Bench):
    member_id = bench.join("group", 600_000).member_id
    before = bench.memory.used_bytes
    for _ in range(5):
        assert bench.join("group", 600_000, member_id).error_code == 0
    assert bench.memory.used_bytes == before
    assert bench.join("group", 3 * MB, member_id).error_code == int(ErrorCode.GROUP_MAX_SIZE_REACHED)


def test_requests_rejected_for_other_reasons_need_no_memory(bench: Bench):
    bench.join("group", 100)
    before = bench.memory.used_bytes
    assert bench.join("group", 900_000, "nobody").error_code == int(ErrorCode.UNKNOWN_MEMBER_ID)
    assert bench.memory.used_bytes == before


def test_offsets_count_and_have_a_limit(bench: Bench):
    bench.limit_bytes = 10 * (OFFSET_BYTES + 1000)
    codes = [bench.commit("m" * 1000, partition) for partition in range(12)]
    assert codes == [0] * 10 + [int(ErrorCode.INVALID_COMMIT_OFFSET_SIZE)] * 2
    # A request that needs no additional memory is accepted.
    assert bench.commit("n" * 1000, 3) == 0
    assert bench.commit("", 3) == 0


def test_the_counted_memory_is_the_added_memory(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    """In slices, with concurrent changes."""
    monkeypatch.setattr(group_memory, "SLICE", 3)
    for number in range(8):
        bench.join(f"group-{number}", 10_000)
        bench.commit("text", number)
    added = bench.memory.used_bytes
    bench.memory.count_soon()
    bench.coordinator.run_once()
    bench.join("meanwhile", 50_000)
    for _ in range(30):
        bench.coordinator.advance_ms(group_memory.SLICE_PAUSE_MS)
    counted = bench.memory.used_bytes - 50_000 - MEMBER_BYTES
    groups = sum(isinstance(group, ClassicGroup) for group in bench.coordinator.shard.groups.values())
    assert added <= counted <= added + groups * 3 * MEMBER_BYTES


def test_groups_that_were_read_back_are_counted(bench: Bench):
    bench.join("group", 100_000)
    fresh = GroupMemory(lambda: MB, lambda: shard_sizes([bench.coordinator.shard]), bench.coordinator.timers)
    assert fresh.used_bytes == 0
    fresh.count_soon()
    bench.coordinator.run_once()
    assert fresh.used_bytes > 100_000
