"""Which connections a processor closes when the acceptor has found that there are too many (`A17`).

As Kafka chooses: those first that are about to be closed anyway, then those that have been silent longest.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from rotunda.broker.network.handoff import CloseOrder
from rotunda.broker.network.processor.channel import Channel


def excess_channels(order: CloseOrder, channels: Iterable[Channel]) -> list[Channel]:
    """Return which of the channels to close, so that as many are left as the order says.

    ``channels``: those of the processor, the least recently active first. Those of the protected listener stay, and are
    not among those that are counted.
    """
    counted = [channel for channel in channels if channel.listener != order.protected]
    closing = [channel for channel in counted if channel.closing]
    others = [channel for channel in counted if not channel.closing]
    return list(chain(closing, others))[: max(0, len(counted) - order.left)]
