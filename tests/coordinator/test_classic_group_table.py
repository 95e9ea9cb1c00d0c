"""Every request of a member in every state of its group: the responses of Kafka's coordinator."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rotunda.broker.coordinator.classic.group import PREDECESSORS, ClassicGroup, GroupState
from rotunda.broker.coordinator.group import Committer
from tests.support.groups.coordinator import GROUP, Coordinator
from tests.support.groups.members import heartbeat, join, leave, stable_group, sync

#: The request gets no response before another event.
WAITS = "waits"

STATES = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead")

Outcome = int | str


class Scene:
    """A group in some state with two members: a leader and a follower. Dead: the group does not exist."""

    def __init__(self, state: str) -> None:
        self.coordinator = Coordinator()
        if state == "Dead":
            self.leader, self.follower, self.generation = "gone-1", "gone-2", 3
            return
        self.leader, self.follower = stable_group(self.coordinator)
        if state == "Empty":
            assert leave(self.coordinator, (self.leader, None), (self.follower, None)) == [0, 0]
        elif state == "PreparingRebalance":
            join(self.coordinator, version=3)
        elif state == "CompletingRebalance":
            join(self.coordinator, self.leader)
            join(self.coordinator, self.follower)
        self.generation = self.coordinator.group.generation
        assert self.coordinator.group.state_name == state

    @property
    def is_there(self) -> bool:
        return GROUP in self.coordinator.shard.groups

    def join(self, member_id: str = "", **options: object) -> Outcome:
        return self._outcome(join(self.coordinator, member_id, **options))  # type: ignore[arg-type]

    def sync(self, member_id: str, generation: int | None = None, **options: object) -> Outcome:
        if not self.is_there:
            return 25
        number = self.generation if generation is None else generation
        return self._outcome(sync(self.coordinator, member_id, generation=number, **options))  # type: ignore[arg-type]

    def heartbeat(self, member_id: str, generation: int | None = None) -> Outcome:
        if not self.is_there:
            return 25
        return heartbeat(self.coordinator, member_id, self.generation if generation is None else generation)

    def leave(self, member_id: str, instance_id: str | None = None) -> Outcome:
        return leave(self.coordinator, (member_id, instance_id))[0] if self.is_there else 25

    def commit(
        self,
        member_id: str,
        generation: int,
        version: int = 9,
        instance_id: str | None = None,
        *,
        transactional: bool = False,
    ) -> Outcome:
        committer = Committer(GROUP, member_id, instance_id, generation, version, transactional)
        return self.coordinator.commit(committer)

    def of_group(self, validate: Callable[[ClassicGroup], int]) -> Outcome:
        return validate(self.coordinator.group) if self.is_there else 69

    def _outcome(self, responses: list) -> Outcome:  # type: ignore[type-arg]
        return responses[0].error_code if responses else WAITS


#: By request: the outcome in each state, in the order of STATES.
TABLE: dict[str, tuple[Callable[[Scene], Outcome], tuple[Outcome, ...]]] = {
    "join, new": (lambda s: s.join(), (79, 79, 79, 79, 79)),
    "join, new, before version 4": (lambda s: s.join(version=3), (WAITS, WAITS, WAITS, WAITS, WAITS)),
    "join, new, static": (lambda s: s.join(instance_id="i"), (WAITS, WAITS, WAITS, WAITS, WAITS)),
    "join, new, of another type": (lambda s: s.join(protocol_type="connect"), (79, 23, 23, 23, 79)),
    "join, new, of no type": (lambda s: s.join(protocol_type=""), (23, 23, 23, 23, 23)),
    "join, new, without protocols": (lambda s: s.join(protocols=()), (23, 23, 23, 23, 23)),
    "join, new, with other protocols": (lambda s: s.join(protocols=(("odd", b""),)), (79, 23, 23, 23, 79)),
    "join, unknown": (lambda s: s.join("nobody"), (25, 25, 25, 25, 25)),
    "join, follower": (lambda s: s.join(s.follower), (25, WAITS, 0, 0, 25)),
    "join, leader": (lambda s: s.join(s.leader), (25, WAITS, 0, WAITS, 25)),
    "join, follower, with other metadata": (
        lambda s: s.join(s.follower, protocols=(("range", b"new"),)),
        (25, WAITS, WAITS, WAITS, 25),
    ),
    "join, follower, by an unknown instance": (lambda s: s.join(s.follower, instance_id="i"), (25, 25, 25, 25, 25)),
    "sync, follower": (lambda s: s.sync(s.follower), (25, 27, WAITS, 0, 25)),
    "sync, leader": (lambda s: s.sync(s.leader), (25, 27, WAITS, 0, 25)),
    "sync, unknown": (lambda s: s.sync("nobody"), (25, 25, 25, 25, 25)),
    "sync, old generation": (lambda s: s.sync(s.follower, 0), (25, 22, 22, 22, 25)),
    "sync, other type": (lambda s: s.sync(s.follower, protocol=("connect", "range")), (25, 23, 23, 23, 25)),
    "sync, other protocol": (lambda s: s.sync(s.follower, protocol=("consumer", "odd")), (25, 23, 23, 23, 25)),
    "sync, no response": (lambda s: s.sync(s.follower, protocol=(None, None)), (25, 27, WAITS, 0, 25)),
    "heartbeat": (lambda s: s.heartbeat(s.follower), (25, 27, 0, 0, 25)),
    "heartbeat, unknown": (lambda s: s.heartbeat("nobody"), (25, 25, 25, 25, 25)),
    "heartbeat, old generation": (lambda s: s.heartbeat(s.follower, 0), (25, 22, 22, 22, 25)),
    "leave": (lambda s: s.leave(s.follower), (25, 0, 0, 0, 25)),
    "leave, unknown": (lambda s: s.leave("nobody"), (25, 25, 25, 25, 25)),
    "leave, unknown instance": (lambda s: s.leave("", "i"), (25, 25, 25, 25, 25)),
    "commit": (lambda s: s.commit(s.follower, s.generation), (25, 0, 27, 0, 69)),
    "commit, before version 9": (lambda s: s.commit(s.follower, s.generation, 8), (25, 0, 27, 0, 22)),
    "commit, unknown": (lambda s: s.commit("nobody", s.generation), (25, 25, 25, 25, 69)),
    "commit, old generation": (lambda s: s.commit(s.follower, 0), (25, 22, 22, 22, 69)),
    "commit, by no member": (lambda s: s.commit("", -1), (0, 25, 25, 25, 0)),
    "transactional commit": (
        lambda s: s.commit(s.follower, s.generation, 3, transactional=True),
        (25, 0, 0, 0, 22),
    ),
    "transactional commit, unknown": (
        lambda s: s.commit("nobody", s.generation, 3, transactional=True),
        (25, 25, 25, 25, 22),
    ),
    "transactional commit, old generation": (
        lambda s: s.commit(s.follower, 0, 3, transactional=True),
        (25, 22, 22, 22, 22),
    ),
    "transactional commit, by an unknown instance": (
        lambda s: s.commit(s.follower, s.generation, 3, "i", transactional=True),
        (25, 25, 25, 25, 22),
    ),
    "transactional commit, by no member": (lambda s: s.commit("", -1, 2, transactional=True), (0, 0, 0, 0, 0)),
    "delete": (lambda s: s.of_group(ClassicGroup.validate_delete), (0, 68, 68, 68, 69)),
    "delete offsets": (lambda s: s.of_group(ClassicGroup.validate_offset_delete), (0, 0, 0, 0, 69)),
    "fetch offsets": (lambda s: s.of_group(lambda g: g.validate_offset_fetch(None, -1)), (0, 0, 0, 0, 69)),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("request_name", TABLE)
def test_request_in_state(request_name: str, state: str) -> None:
    """I12 and users row 7: the error code of each request, above all of a commit during a rebalance."""
    act, outcomes = TABLE[request_name]
    assert act(Scene(state)) == outcomes[STATES.index(state)]


def test_every_state_is_in_the_tables() -> None:
    assert set(STATES) == {state.value for state in GroupState}
    assert set(PREDECESSORS) == set(GroupState)


def test_a_state_is_entered_only_from_its_predecessors() -> None:
    for before in GroupState:
        for after in GroupState:
            group = ClassicGroup(GROUP)
            group.state = before
            if before in PREDECESSORS[after]:
                group.transition_to(after, 5)
                assert (group.state, group.previous_state, group.state_ms) == (after, before, 5)
            else:
                with pytest.raises(ValueError, match="cannot go"):
                    group.transition_to(after, 5)
