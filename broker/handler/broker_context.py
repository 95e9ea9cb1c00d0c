"""Builds the context of the API functions, and registers the tasks that other targets may call.

Runs in handler processes and the controller, once before the first turn.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from rotunda.broker.apis.cluster.controller_access import TOPICS_AT_ONCE
from rotunda.broker.apis.context import Access, BrokerContext
from rotunda.broker.apis.groups.group_tasks import register_group_tasks
from rotunda.broker.apis.table import advertised
from rotunda.broker.coordinator.coordinators import Coordinators
from rotunda.broker.coordinator.share_state.dead_letters import DEAD_LETTER_TOPIC_CONFIGS
from rotunda.broker.coordinator.transaction.hanging import HangingTransactions
from rotunda.broker.coordinator.transaction.rpc import PRODUCER_ID
from rotunda.broker.errors import ApiError
from rotunda.broker.ipc.listener_table import ListenerNames
from rotunda.broker.partitions.log_maintenance import LogMaintenance
from rotunda.broker.quotas.quota_manager import QuotaManager
from rotunda.broker.scheduling.peer_tasks import TargetTasks
from rotunda.broker.scheduling.slices import SlicedWork, Slices, TooManyWaitError, Work
from rotunda.broker.telemetry.receiver import TelemetryReceiver
from rotunda.broker.telemetry.rows import metric_rows
from rotunda.shm.recorder_layout import CLIENT_METRICS

if TYPE_CHECKING:
    from rotunda.broker.handler.group_fast_path import CommitResponses
    from rotunda.broker.handler.peer_calls import PeerCalls
    from rotunda.broker.ipc.process_context import ProcessContext
    from rotunda.broker.metadata.active_controller import ActiveController
    from rotunda.broker.partitions.partition_manager import PartitionManager
    from rotunda.broker.partitions.produce.partition_appender import PartitionAppender
    from rotunda.broker.scheduling.peer_tasks import TaskDone
    from rotunda.broker.telemetry.instances import Instance
    from rotunda.broker.telemetry.otlp import DataPoint


logger = logging.getLogger(__name__)


class ControllerTasks:
    """The controller's tasks for other targets: automatic topic creation and the allocation of producer ids."""

    def __init__(self, active: ActiveController, tasks: TargetTasks, slices: Slices) -> None:
        self._controller = active.controller
        self._announce = active.announce
        self._slices = slices
        #: Topics that other targets have requested and that are not created yet.
        self._to_create: dict[str, None] = {}
        tasks.register("create_topic", self._create_topic)
        tasks.register("create_dead_letter_topic", self._create_dead_letter_topic)
        tasks.register("next_producer_id", self._next_producer_id)

    def _next_producer_id(self, payload: bytes, reply: TaskDone) -> None:
        del payload
        try:
            reply(0, PRODUCER_ID.pack(self._controller.next_producer_id()))
        except ApiError as error:
            reply(error.code, b"")

    def _create_dead_letter_topic(self, payload: bytes, reply: TaskDone) -> None:
        error = self._controller.auto_create([payload.decode()], DEAD_LETTER_TOPIC_CONFIGS)[payload.decode()]
        self._announce()
        reply(error, b"")

    def _create_topic(self, payload: bytes, reply: TaskDone) -> None:
        """Schedule the creation of a topic. Reply at once: the caller sees the new topic in the metadata."""
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
                # The client retries, which requests the topic again.
                end()
                raise
        reply(0, b"")

    def _create(self) -> Work:
        """Create the requested topics, up to `TOPICS_AT_ONCE` with each metadata change."""
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


def make_context(
    context: ProcessContext,
    partitions: PartitionManager,
    controller: ActiveController | None,
    peer_calls: PeerCalls,
    appends: PartitionAppender,
    commit_responses: CommitResponses,
    slices: Slices,
) -> BrokerContext:
    """Return the context of this target's API functions, and register its tasks."""
    clock = partitions.clock
    tasks = TargetTasks(partitions.index, peer_calls.send)

    def create_topics(names: Sequence[str]) -> None:
        for name in names:
            tasks.ask(context.controller, "create_topic", name.encode(), _nobody_waits)

    coordinators = Coordinators(
        context, partitions, clock, tasks, create_topics, appends, commit_responses.send_repeated
    )
    if partitions.index < context.handlers:
        HangingTransactions(partitions, coordinators, slices)
    broker = BrokerContext(
        context.cluster_id,
        clock,
        partitions.metadata,
        Access(partitions.metadata),
        partitions,
        coordinators,
        tasks,
        context.client_hosts,
        context.listener_table,
        create_topics,
        QuotaManager(context.quota_tables, partitions.index, context.config, ListenerNames(context.listener_table)),
        controller,
        _telemetry(context, partitions, coordinators),
        advertised(has_telemetry=context.config.client_telemetry_receiver_enable),
    )
    register_group_tasks(broker)
    LogMaintenance(partitions.owned, tasks)
    if controller is not None:
        ControllerTasks(controller, tasks, slices)
    return broker


def _telemetry(
    context: ProcessContext, partitions: PartitionManager, coordinators: Coordinators
) -> TelemetryReceiver | None:
    """Return the receiver of client metrics of a handler, if they are received; each push goes to the request log."""
    if not context.config.client_telemetry_receiver_enable or partitions.index == context.controller:
        return None
    feed = coordinators.group_feed

    def record(instance: Instance, points: Sequence[DataPoint], wall_ms: int) -> None:
        feed.send(metric_rows(instance, points, wall_ms), CLIENT_METRICS)

    return TelemetryReceiver(partitions.metadata, context.client_hosts, partitions.clock, record)


def _nobody_waits(error: int, payload: bytes) -> None:
    """Ignore the reply: no request waits for this task."""
