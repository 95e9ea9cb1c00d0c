"""Chooses the connections a processor closes when the acceptor has ordered it to close the excess (`A17`).

Pure. The choice is Kafka's: first connections that are closing anyway, then those silent longest.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from rotunda.broker.network.handoff import CloseOrder
from rotunda.broker.network.processor.channel import Channel


def excess_channels(order: CloseOrder, channels: Iterable[Channel]) -> list[Channel]:
    """Return the channels to close, so that as many remain as the order states.

    ``channels``: those of the processor, the least recently active first. Those of the protected listener stay, and are
    not counted.
    """
    counted = [channel for channel in channels if channel.listener != order.protected]
    closing = [channel for channel in counted if channel.closing]
    others = [channel for channel in counted if not channel.closing]
    return list(chain(closing, others))[: max(0, len(counted) - order.left)]
