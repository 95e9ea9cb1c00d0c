"""A coordinator of classic groups and the members of one group, in one process and in time that stands still.

The coordinator is the real one over a log in memory: what is appended is committed when `turn` is called, or lost if
the coordinator is replaced before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from broker.config import load
from broker.coordinator.classic_group import ClassicGroup
from broker.coordinator.classic_protocol import ClassicProtocol
from broker.coordinator.coordinator_log import CoordinatorLog
from broker.coordinator.group import JoinRequest, JoinResult, LeavingMember, SyncRequest, SyncResult
from broker.coordinator.group_events import GroupEvent
from broker.coordinator.group_replay import CLASSIC_REPLAYS
from broker.coordinator.group_shard import GroupShard
from broker.coordinator.timers import Timers
from broker.protocol.record_reader import iterate_records
from tests.support.fakes import FakeClock

GROUP = "readers"
SESSION_MS = 10_000
REBALANCE_MS = 60_000

Protocols = tuple[tuple[str, bytes], ...]

RANGE: Protocols = (("range", b"r"),)
BOTH: Protocols = (("range", b"r"), ("sticky", b"s"))
STICKY_FIRST: Protocols = (("sticky", b"s"), ("range", b"r"))


class Coordinator:
    """One partition of `__consumer_offsets` and what runs its classic groups."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.config = load(None, dict(settings or {}), {})
        self.clock = FakeClock(monotonic_ns=1_000_000_000)
        self.told: list[GroupEvent] = []
        self._written: list[bytes] = []
        self._start()

    def _start(self) -> None:
        self._staged: list[tuple[bytes, object]] = []
        self.timers = Timers(self.clock.monotonic_ns)
        log = CoordinatorLog("__consumer_offsets", 0, self._append, self.clock.wall_ms)
        self._log = log
        self.classic = ClassicProtocol(lambda: self.config, self.timers, self.clock.wall_ms, self._note)
        self.shard = GroupShard(log, CLASSIC_REPLAYS, self.classic.loaded)
        for batch in self._written:
            for record in iterate_records(batch):
                self.shard.replay(record.key or b"", record.value, -1, record.timestamp_ms)
        self.shard.loaded()

    @property
    def events(self) -> list[tuple[str, str]]:
        """What happened, and to whom."""
        return [(event.event, event.member_id) for event in self.told]

    def _append(self, batch: memoryview, answer: object) -> None:
        self._staged.append((bytes(batch), answer))

    def _note(self, event: GroupEvent) -> None:
        self.told.append(event)

    @property
    def group(self) -> ClassicGroup:
        """The group of these tests."""
        group = self.shard.groups[GROUP]
        assert isinstance(group, ClassicGroup)
        return group

    def turn(self, error: int = 0) -> None:
        """See to deadlines and commit what has been appended; with ``error``, fail to."""
        self.timers.run_due(self.clock.monotonic_ns())
        while self._log.flush():
            staged, self._staged = self._staged, []
            for batch, answer in staged:
                if not error:
                    self._written.append(batch)
                answer(error, 0, 0)  # type: ignore[operator]

    def advance_ms(self, ms: int) -> None:
        """Let time pass, with a turn at its end."""
        self.clock.advance_ns(ms * 1_000_000)
        self.turn()

    def replace(self) -> None:
        """Let another coordinator take over with what is committed."""
        self._start()


def join(
    coordinator: Coordinator,
    member_id: str = "",
    protocols: Protocols = RANGE,
    *,
    instance_id: str | None = None,
    protocol_type: str = "consumer",
    version: int = 9,
    session_ms: int = SESSION_MS,
) -> list[JoinResult]:
    """Ask to join; the answer appears in the list."""
    answers: list[JoinResult] = []
    request = JoinRequest(
        member_id, instance_id, "client", "host", session_ms, REBALANCE_MS, protocol_type, protocols, "test",
        version >= 4, version >= 9,
    )  # fmt: skip
    shard, classic = coordinator.shard, coordinator.classic
    group = shard.groups.get(GROUP)
    if group is None:
        if member_id:
            return [JoinResult(25, member_id)]
        group = classic.create(shard, GROUP)
    classic.join(shard, group, request, answers.append)
    return answers


def join_twice(coordinator: Coordinator, protocols: Protocols = RANGE) -> tuple[str, list[JoinResult]]:
    """Join as a new member does: first for an id, then with it. Return the id, and where the answer appears."""
    [first] = join(coordinator, "", protocols)
    assert first.error_code == 79
    return first.member_id, join(coordinator, first.member_id, protocols)


def sync(
    coordinator: Coordinator,
    member_id: str,
    assignments: Mapping[str, bytes] | None = None,
    *,
    generation: int | None = None,
    instance_id: str | None = None,
    protocol: tuple[str | None, str | None] = ("consumer", "range"),
) -> list[SyncResult]:
    """Ask for the assignment; the answer appears in the list."""
    answers: list[SyncResult] = []
    number = coordinator.group.generation if generation is None else generation
    request = SyncRequest(member_id, instance_id, number, *protocol, dict(assignments or {}))
    coordinator.classic.sync(coordinator.shard, coordinator.group, request, answers.append)
    return answers


def heartbeat(
    coordinator: Coordinator, member_id: str, generation: int | None = None, instance_id: str | None = None
) -> int:
    """Return the error of a heartbeat."""
    number = coordinator.group.generation if generation is None else generation
    return coordinator.classic.heartbeat(coordinator.shard, coordinator.group, member_id, instance_id, number)


def leave(coordinator: Coordinator, *members: tuple[str, str | None]) -> list[int]:
    """Let members leave, with a turn; return their errors."""
    answers: list[list[int]] = []
    leaving = [LeavingMember(member_id, instance_id, "test") for member_id, instance_id in members]
    coordinator.classic.leave(coordinator.shard, coordinator.group, leaving, answers.append)
    coordinator.turn()
    [errors] = answers
    return errors


def stable_group(coordinator: Coordinator, members: Sequence[Protocols] = (RANGE, RANGE)) -> list[str]:
    """Bring the group to Stable with these members, the leader first; return their ids."""
    joined = [join_twice(coordinator, protocols) for protocols in members]
    coordinator.turn()
    assert all(answers[0].error_code == 0 for _, answers in joined)
    return settle(coordinator, [member_id for member_id, _ in joined])


def settle(coordinator: Coordinator, member_ids: Sequence[str]) -> list[str]:
    """Give everybody an assignment, its own id; return the ids, the leader first."""
    leader = coordinator.group.leader
    assert leader is not None
    protocol = (coordinator.group.protocol_type, coordinator.group.protocol_name)
    others = [member_id for member_id in member_ids if member_id != leader]
    answers = [sync(coordinator, member_id, protocol=protocol) for member_id in others]
    everybody = {member_id: member_id.encode() for member_id in coordinator.group.members}
    answers.append(sync(coordinator, leader, everybody, protocol=protocol))
    coordinator.turn()
    assert [each[0].assignment for each in answers] == [each.encode() for each in (*others, leader)]
    assert coordinator.group.state_name == "Stable"
    return [leader, *others]
