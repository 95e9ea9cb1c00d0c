"""The maker of the context of API functions, and of the tasks that other targets may ask of this one.

Runs in handler processes and the controller, once before the first turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.apis.context import Access, BrokerContext
from broker.apis.groups.group_tasks import register_group_tasks
from broker.apis.table import advertised
from broker.coordinator.coordinators import Coordinators
from broker.coordinator.transaction.hanging import HangingTransactions
from broker.handler.controller_tasks import ControllerTasks
from broker.ipc.listener_table import ListenerNames
from broker.partitions.log_maintenance import LogMaintenance
from broker.quotas.quota_manager import QuotaManager
from broker.scheduling.peer_tasks import TargetTasks

if TYPE_CHECKING:
    from broker.handler.commit_answers import CommitAnswers
    from broker.handler.peer_calls import PeerCalls
    from broker.ipc.process_context import ProcessContext
    from broker.metadata.active_controller import ActiveController
    from broker.partitions.partition_manager import PartitionManager
    from broker.partitions.produce.partition_appender import PartitionAppender
    from broker.scheduling.slices import Slices


def make_context(
    context: ProcessContext,
    partitions: PartitionManager,
    controller: ActiveController | None,
    peer_calls: PeerCalls,
    appends: PartitionAppender,
    commit_answers: CommitAnswers,
    slices: Slices,
) -> BrokerContext:
    """Return what the API functions of a target work with; from then on its tasks can be asked for."""
    clock = partitions.clock
    tasks = TargetTasks(partitions.index, peer_calls.send)

    def create_topics(names: Sequence[str]) -> None:
        for name in names:
            tasks.ask(context.controller, "create_topic", name.encode(), _nobody_waits)

    coordinators = Coordinators(
        context, partitions, clock, tasks, create_topics, appends, commit_answers.answer_repeated
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
        advertised(),
    )
    register_group_tasks(broker)
    LogMaintenance(partitions.owned, tasks)
    if controller is not None:
        ControllerTasks(controller, tasks, slices)
    return broker


def _nobody_waits(error: int, answer: bytes) -> None:
    """Let nobody wait for the answer to a task."""
