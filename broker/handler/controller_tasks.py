"""The controller's tasks for other targets: topics that are created when they are first asked for, and producer ids.

Runs in the controller.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING

from broker.apis.cluster.controller_access import TOPICS_AT_ONCE
from broker.coordinator.transaction.rpc import PRODUCER_ID
from broker.errors import ApiError
from broker.scheduling.slices import SlicedWork, Slices, TooManyWaitError, Work

if TYPE_CHECKING:
    from broker.metadata.active_controller import ActiveController
    from broker.scheduling.peer_tasks import TargetTasks, TaskDone

logger = logging.getLogger(__name__)


class ControllerTasks:
    """Does what others ask of the controller."""

    def __init__(self, active: ActiveController, tasks: TargetTasks, slices: Slices) -> None:
        self._controller = active.controller
        self._announce = active.announce
        self._slices = slices
        #: Topics that others have asked for and that are not made yet.
        self._to_create: dict[str, None] = {}
        tasks.register("create_topic", self._create_topic)
        tasks.register("next_producer_id", self._next_producer_id)

    def _next_producer_id(self, payload: bytes, reply: TaskDone) -> None:
        del payload
        try:
            reply(0, PRODUCER_ID.pack(self._controller.next_producer_id()))
        except ApiError as error:
            reply(error.code, b"")

    def _create_topic(self, payload: bytes, reply: TaskDone) -> None:
        """Have a topic created. That it has been shows in the metadata, so the answer does not wait for that."""
        is_first = not self._to_create
        self._to_create[payload.decode()] = None
        if is_first:
            end = self._to_create.clear
            try:
                self._slices.add(
                    SlicedWork(
                        self._create(),
                        "creation",
                        lambda _: end(),
                        end,
                        ("topics that clients made up", ""),
                        exclusive=True,
                    )
                )
            except TooManyWaitError:
                # Whoever asked for it asks again.
                end()
                raise
        reply(0, b"")

    def _create(self) -> Work:
        """Create the topics that were asked for, some with each change of the metadata."""
        while self._to_create:
            names = list(islice(self._to_create, TOPICS_AT_ONCE))
            try:
                self._controller.auto_create(names)
            except ApiError as error:
                logger.error("cannot create topics %s: %s", ", ".join(names), error)
            for name in names:
                del self._to_create[name]
            self._announce()
            yield None
