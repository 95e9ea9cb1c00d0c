"""Where messages between targets come in and go out: a table from kind to what is done.

Runs in handler processes and the controller. Every question may be asked twice (its asker, or this process, may have
been replaced in between), so every task here is safe to do twice: an append is recognised by its note, a deletion of
records and a creation of topics by their outcome.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from broker.apis.cluster.controlling import TOPICS_AT_ONCE
from broker.apis.context import PendingAnswer
from broker.errors import ApiError
from broker.handler.broker_state import OWNER_TASK_NAMES
from broker.handler.peer_payloads import IN_MESSAGE, PeerPost
from broker.ipc.memory_areas import MemoryAreas
from broker.ipc.peer_channel import (
    CREATE_TOPICS,
    DONE,
    OWNER_ANSWER,
    OWNER_TASK,
    POISON,
    PRODUCE_ANSWER,
    PRODUCE_PART,
    TASK,
    TASK_ANSWER,
    PeerMessage,
    Peers,
    Received,
)
from broker.partitions.produce.append_receipts import note_refusal
from broker.protocol.error_codes import ErrorCode
from broker.scheduling.peer_tasks import TASK_NAMES, TaskDone
from broker.scheduling.slices import SlicedWork, Slices, TooManyWaitError, Work
from shm.process_slots import CONTROLLER, HANDLER

if TYPE_CHECKING:
    from broker.handler.broker_state import BrokerState
    from broker.ipc.poison_requests import PoisonRequests
    from broker.ipc.request_channel import RequestChannel
    from broker.metadata.controller import Controller
    from broker.partitions.produce.produce import ProducePath
    from broker.scheduling.purgatory import DelayedOperations

logger = logging.getLogger(__name__)

_FAULT = int(ErrorCode.UNKNOWN_SERVER_ERROR)

_NAMES = {
    PRODUCE_PART: "a part of a Produce",
    PRODUCE_ANSWER: "an answer to a part of a Produce",
    CREATE_TOPICS: "a topic to create",
    OWNER_TASK: "work on a partition",
    OWNER_ANSWER: "an answer about a partition",
    TASK: "a task",
    TASK_ANSWER: "an answer to a task",
    DONE: "what a predecessor has done",
}

#: What answers a question of which kind; one that only makes something happen has no answer.
_ANSWER_KINDS = {PRODUCE_PART: PRODUCE_ANSWER, OWNER_TASK: OWNER_ANSWER, TASK: TASK_ANSWER}


class _Asked(NamedTuple):
    """A task that was put to a target, to be put to its replacement as well if that comes before the answer."""

    target: int
    generation: int
    message: PeerMessage


class PeerRpc:
    """One target's correspondence with the others."""

    def __init__(
        self,
        state: BrokerState,
        channel: RequestChannel,
        areas: MemoryAreas,
        poison: PoisonRequests,
        generation: int,
        slices: Slices,
        now_ns: Callable[[], int],
    ) -> None:
        self.peers = Peers(channel, state.index, generation, state.heritage.target_bells)
        self._state = state
        self._areas = areas
        self._poison = poison
        #: Controller: topics that others have asked for and that are not made yet.
        self._to_create: dict[str, None] = {}
        self._asked: dict[int, PendingAnswer] = {}
        self._asked_tasks: dict[int, TaskDone] = {}
        #: Of those, the ones that are done in slices: their target may die when it has let go of the question.
        self._asked_sliced: dict[int, _Asked] = {}
        self._slices = slices
        self._now_ns = now_ns
        self._tokens = self.peers.new_tokens()
        self._post = PeerPost(state.heritage.run_dir, state.index)
        #: By source, up to where its messages have been taken and not been given back.
        self._taken: dict[int, int] = {}
        #: By source, where the parts of Produce end that have been taken and not been answered.
        self._unanswered: dict[int, set[int]] = defaultdict(set)
        self._position = 0
        self._produce: ProducePath | None = None
        self._delayed: DelayedOperations | None = None
        self._tasks: dict[int, Callable[[int, PeerMessage], None]] = {
            PRODUCE_PART: self._produce_part,
            PRODUCE_ANSWER: self._produce_answer,
            CREATE_TOPICS: self._create_topics,
            OWNER_TASK: self._owner_task,
            OWNER_ANSWER: self._owner_answer,
            TASK: self._task,
            TASK_ANSWER: self._task_answer,
            DONE: _nothing,
        }
        state.ask_peer = self.ask
        state.create_topics_later = self.ask_for_topics
        state.tasks.send = self.ask_target

    def connect(self, produce: ProducePath, delayed: DelayedOperations) -> None:
        """Name the paths that messages lead to."""
        self._produce = produce
        self._delayed = delayed

    def receive(self) -> list[Received]:
        """Return what has arrived. It stays in the rings until `publish`."""
        return self.peers.receive()

    def take(self, messages: list[Received], end_ns: int) -> list[Received]:
        """Do what others have asked, one at least, until a time; return what is left for the next turn.

        What has killed this process's predecessors is refused.
        """
        current = self._poison.current
        for number, (source, message, position) in enumerate(messages, 1):
            identity = -1 - source, position
            self._position = position
            current.enter(identity)
            try:
                if self._poison.is_condemned(identity):
                    self._refuse(source, message)
                else:
                    self._tasks[message.kind](source, message)
            except Exception:
                logger.exception("message of kind %d from target %d failed", message.kind, source)
                self._unanswered[source].discard(position)
                self._answer_failure(source, message)
            current.leave()
            self._taken[source] = position
            if self._now_ns() >= end_ns:
                return messages[number:]
        return []

    def repeat(self) -> None:
        """Ask again what is done in slices by a target that has been replaced since it was asked."""
        for token, (target, generation, message) in list(self._asked_sliced.items()):
            now = self._generation(target)
            if now != generation:
                self._asked_sliced[token] = _Asked(target, now, message)
                self.peers.send(target, message)

    def publish(self) -> None:
        """Send what is to be sent; then, and only then, let go of the questions that it answers."""
        self.peers.publish()
        self.peers.release_taken(self._taken, self._unanswered)

    def ask(self, row: int, kind: str, argument: int, pending: PendingAnswer) -> None:
        """Put a task to the owner of a row."""
        owner = self._state.owner_of(row)
        if owner is None:
            pending.error_code, pending.done = 3, True
            return
        token = next(self._tokens)
        self._asked[token] = pending
        task = OWNER_TASK_NAMES.index(kind)
        self.peers.send(owner, PeerMessage(OWNER_TASK, part=task, token=token, row=row, argument=argument))

    def ask_target(self, target: int, task: int, payload: bytes, done: TaskDone) -> None:
        """Put a task to another target; its answer is given to ``done`` in some later turn."""
        token = next(self._tokens)
        place, letter = self._post.pack(payload)
        self._asked_tasks[token] = done if place == IN_MESSAGE else self._clearing_up(letter, done)
        message = PeerMessage(TASK, part=task, token=token, area=place, payload=letter)
        if self._state.tasks.is_sliced(task):
            self._asked_sliced[token] = _Asked(target, self._generation(target), message)
        self.peers.send(target, message)

    def _generation(self, target: int) -> int:
        slots, handlers = self._state.heritage.slots, self._state.heritage.handlers
        return slots.ready_generation(*((HANDLER, target) if target < handlers else (CONTROLLER, 0)))

    def _clearing_up(self, letter: bytes, done: TaskDone) -> TaskDone:
        """Return ``done`` such that the file of the question goes when its answer is there."""

        def answered(error: int, payload: bytes) -> None:
            self._post.remove(letter)
            done(error, payload)

        return answered

    def ask_for_topics(self, names: Sequence[str]) -> None:
        """Ask the controller to create topics; that it has shows in the metadata."""
        controller = self._state.heritage.handlers
        for name in names:
            self.peers.send(controller, PeerMessage(CREATE_TOPICS, payload=name.encode()))

    def _refuse(self, source: int, message: PeerMessage) -> None:
        """Refuse what predecessors of this process have died in; the connection of a Produce is closed by its taker."""
        self._poison.report_message(source, _NAMES[message.kind])
        if message.kind == PRODUCE_PART:
            note_refusal(self._areas.view(message.area), message.address, message.size, _FAULT)
            self._answer_failure(source, message, POISON)
        else:
            self._answer_failure(source, message)

    def _answer_failure(self, source: int, message: PeerMessage, error: int = _FAULT) -> None:
        """Tell the asker that its question met a fault, so that nobody waits for ever."""
        kind = _ANSWER_KINDS.get(message.kind)
        if kind is not None:
            reply = PeerMessage(kind, error_code=error, part=message.part, token=message.token, row=message.row)
            self.peers.answer(source, reply)

    def _produce_part(self, source: int, message: PeerMessage) -> None:
        if self._produce is None:
            return
        position, unanswered = self._position, self._unanswered[source]
        unanswered.add(position)

        def answer(error: int, base_offset: int, time_ms: int) -> None:
            start = self._state.partitions.read_start(message.row)
            reply = PeerMessage(
                PRODUCE_ANSWER,
                error_code=error,
                part=message.part,
                token=message.token,
                row=message.row,
                base_offset=base_offset,
                time_ms=time_ms,
                argument=start,
            )
            self.peers.answer(source, reply)
            unanswered.discard(position)

        self._produce.take_peer_part(source, message, self._areas.view(message.area), answer)

    def _produce_answer(self, source: int, message: PeerMessage) -> None:
        del source
        if self._produce is not None:
            self._produce.take_peer_answer(message)

    def _owner_task(self, source: int, message: PeerMessage) -> None:
        kind = OWNER_TASK_NAMES[message.part]
        error, value = self._state.do_owner_task(message.row, kind, message.argument)
        reply = PeerMessage(OWNER_ANSWER, error_code=error, token=message.token, row=message.row, base_offset=value)
        self.peers.answer(source, reply)

    def _owner_answer(self, source: int, message: PeerMessage) -> None:
        del source
        pending = self._asked.pop(message.token, None)
        if pending is None:
            return
        pending.error_code, pending.value, pending.done = message.error_code, message.base_offset, True
        if self._delayed is not None:
            self._delayed.something_changed()

    def _task(self, source: int, message: PeerMessage) -> None:
        def reply(error_code: int, payload: bytes) -> None:
            place, letter = self._post.pack(payload)
            answer = PeerMessage(TASK_ANSWER, error_code=error_code, token=message.token, area=place, payload=letter)
            self.peers.answer(source, answer)

        try:
            payload = self._post.unpack(message.area, message.payload, last_use=False)
        except FileNotFoundError:
            # It has its answer: this process's predecessor gave it, and had no time to let go of the question.
            reply(int(ErrorCode.COORDINATOR_NOT_AVAILABLE), b"")
            return
        work = self._state.tasks.sliced(message.part, payload)
        if work is None:
            self._state.tasks.do(message.part, payload, reply)
        elif self._poison.is_condemned((-1 - source, message.token)):
            self._refuse(source, message)
        else:
            self._slices.add_now(self._sliced(work, source, message, reply))

    def _sliced(self, work: Work, source: int, message: PeerMessage, reply: TaskDone) -> SlicedWork:
        return SlicedWork(
            work,
            lane=("target", source),
            # Asked again it lies elsewhere in the ring; its token stays.
            identity=(-1 - source, message.token),
            done=lambda answer: reply(*answer),
            failed=lambda: reply(int(ErrorCode.UNKNOWN_SERVER_ERROR), b""),
            doing=(f"{TASK_NAMES[message.part]} for target {source}", ""),
        )

    def _task_answer(self, source: int, message: PeerMessage) -> None:
        del source
        self._asked_sliced.pop(message.token, None)
        done = self._asked_tasks.pop(message.token, None)
        payload = self._post.unpack(message.area, message.payload, last_use=True)
        if done is not None:
            done(message.error_code, payload)

    def _create_topics(self, source: int, message: PeerMessage) -> None:
        del source
        if self._state.controller is None:
            return
        is_first = not self._to_create
        self._to_create[message.payload.decode()] = None
        if is_first:
            try:
                self._slices.add(self._creation(self._state.controller))
            except TooManyWaitError:
                # Whoever asked for them asks again.
                self._to_create.clear()
                raise

    def _creation(self, controller: Controller) -> SlicedWork:
        work = self._create(controller)
        end = self._to_create.clear
        return SlicedWork(work, "creation", lambda _: end(), end, ("topics that clients made up", ""), exclusive=True)

    def _create(self, controller: Controller) -> Work:
        """Create the topics that were asked for, some with each change of the metadata."""
        while self._to_create:
            names = list(islice(self._to_create, TOPICS_AT_ONCE))
            try:
                controller.auto_create(names)
            except ApiError as error:
                logger.error("cannot create topics %s: %s", ", ".join(names), error)
            for name in names:
                del self._to_create[name]
            self._state.announce_metadata()
            yield None


def _nothing(source: int, message: PeerMessage) -> None:
    """Do nothing with a message."""
