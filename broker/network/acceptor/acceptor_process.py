"""The acceptor process from boot to exit: builds the acceptor from the inherited resources and runs its loop.

The only module of the acceptor that sees the process context and the settings.
"""

from __future__ import annotations

import logging
import resource
from functools import partial
from typing import TYPE_CHECKING

from rotunda.broker.clock import SystemClock
from rotunda.broker.config.listeners import MOST_LISTENERS
from rotunda.broker.ipc.listener_table import ListenerNames
from rotunda.broker.network.acceptor.acceptor import Acceptor
from rotunda.broker.network.acceptor.acceptor_metrics import AcceptorMeters
from rotunda.broker.network.acceptor.connection_limits import limits_of
from rotunda.broker.network.acceptor.descriptors import descriptors_of
from rotunda.broker.network.acceptor.host_names import HostNames
from rotunda.broker.network.acceptor.listener_orders import ListenerOrders
from rotunda.broker.network.acceptor.processor_link import ProcessorsInUse
from rotunda.broker.network.handoff import HandoffSender
from rotunda.broker.runtime.child_process import FaultLimit, Role
from rotunda.shm.tables.process_slots import ACCEPTOR

if TYPE_CHECKING:
    from rotunda.broker.ipc.process_context import ProcessContext
    from rotunda.broker.network.acceptor.connection_limits import ConnectionLimits
    from rotunda.broker.runtime.signals import StopFlag

_log = logging.getLogger(__name__)


def run(context: ProcessContext, index: int, generation: int, stop: StopFlag) -> None:
    """Run the acceptor until the stop signal. The listeners are listening already.

    A failed iteration is logged and the loop continues (`A05`); raises the failure once every iteration fails.
    """
    clock = SystemClock()
    writer = context.begin_metrics(ACCEPTOR, 0, generation)
    settings = context.live_settings()
    hosts = HostNames(clock.monotonic_ns)
    descriptors = descriptors_of(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    table = context.listener_table
    of_version = 0

    def limits() -> ConnectionLimits:
        nonlocal of_version
        of_version = table.version
        names = list(ListenerNames(table))
        hosts.forget_wanted()
        return limits_of(settings.broker_config, settings.client_quotas, names, hosts.addresses_of, descriptors)

    def is_silent(processor: int) -> bool:
        return context.slots.is_silent(Role.PROCESSOR, processor, clock.monotonic_ns())

    def confirm(processors: int) -> None:
        context.slots.confirm(Role.ACCEPTOR, 0, processors)
        context.supervisor_bell.ring()

    def has_ended(processor: int) -> bool:
        return processor >= context.broker_words.processors_made or context.slots.processor_has_ended(processor)

    acceptor = Acceptor(
        context.listeners,
        tuple(HandoffSender(pair[0], partial(is_silent, number)) for number, pair in enumerate(context.handoff)),
        context.config.socket_send_buffer_bytes,
        generation,
        AcceptorMeters(writer, MOST_LISTENERS, clock.monotonic_ns),
        clock,
        limits(),
    )
    in_use = ProcessorsInUse(lambda: context.processors, has_ended, confirm, context.control_listener)
    acceptor.start(stop.fileno(), wait_for_census=generation > 1, in_use=in_use)
    acceptor.follow(ListenerOrders(context.listener_orders[1]))
    context.mark_ready(Role.ACCEPTOR, index, generation)
    faults = FaultLimit(_log, "the acceptor loop")
    try:
        while not stop.is_set():
            with faults:
                if settings.refresh() or hosts.run_once() or of_version != table.version:
                    acceptor.set_limits(limits())
                acceptor.step()
            context.slots.beat(Role.ACCEPTOR, index, clock.monotonic_ns())
    finally:
        acceptor.close()
