"""The kernel's events of real sockets, and the suppression of events."""

import itertools
import socket
from collections.abc import Iterator

import pytest

from rotunda.broker.network.processor.channel import Channel
from rotunda.broker.network.processor.selector import GONE, READ, WRITE, Selector
from rotunda.broker.network.processor.throttling.mute_state import MuteCause
from rotunda.shm.rings.bell import EventBell

Registered = tuple[Selector, Channel, socket.socket]


@pytest.fixture
def registered() -> Iterator[Registered]:
    ours, client = socket.socketpair()
    ours.setblocking(False)
    selector = Selector()
    channel = Channel(ours, 1, 1, 0, "peer")
    selector.register(channel)
    yield selector, channel, client
    ours.close()
    client.close()


def test_b08_write_interest_starts_and_ends_with_unsent_responses(registered: Registered) -> None:
    selector, channel, _ = registered
    channel.unsent.append(b"left over")
    selector.update(channel)
    assert selector.poll(0) == [(channel.fd, WRITE)]
    channel.unsent.clear()
    selector.update(channel)
    assert selector.poll(0) == []


CAUSES = (MuteCause.PIPELINE, MuteCause.RING_FULL, MuteCause.ARENA, MuteCause.OUTPUT)


@pytest.mark.parametrize("order", list(itertools.permutations(CAUSES)))
def test_b11_whatever_the_order_a_channel_is_read_again_when_the_last_cause_ends(
    registered: Registered, order: tuple[MuteCause, ...]
) -> None:
    """As with Kafka's five mute states: unmuting has no effect while any other cause remains."""
    selector, channel, client = registered
    client.send(b"x")
    for cause in reversed(order):
        channel.muted |= cause
        selector.update(channel)
        assert selector.poll(0) == []
    for cause in order:
        assert selector.poll(0) == []
        channel.muted &= ~cause
        selector.update(channel)
    assert selector.poll(0) == [(channel.fd, READ)]


def test_b19_a_muted_channel_of_a_disconnected_client_is_set_aside(registered: Registered) -> None:
    """The kernel reports a hang-up for any interest, so the loop would never sleep again."""
    selector, channel, client = registered
    client.send(b"x")
    client.close()
    channel.muted = MuteCause.ARENA
    selector.update(channel)
    ((_, event),) = selector.poll(0)
    assert event & GONE
    assert not event & READ
    selector.set_aside(channel)
    assert selector.poll(0) == []
    selector.set_aside(channel)
    selector.update(channel)
    assert selector.poll(0) == []
    channel.muted = MuteCause.NONE
    selector.update(channel)
    ((_, event),) = selector.poll(0)
    assert event & READ
    selector.unregister(channel)


def test_b02_a_channel_that_the_kernel_rejects_is_not_registered(registered: Registered) -> None:
    selector, channel, _ = registered
    again = Channel(channel.sock, 2, 2, 0, "peer")
    with pytest.raises(FileExistsError):
        selector.register(again)
    assert selector.channels[channel.fd] is channel


def test_b03_a_bell_wakes_the_poll_once(registered: Registered) -> None:
    selector, _, _ = registered
    bell = EventBell()
    selector.watch_bell(bell.fileno())
    assert selector.poll(1) == []
    for _ in range(2):
        bell.ring()
        bell.ring()
        assert selector.poll(-1) == [(bell.fileno(), READ)]
        assert selector.poll(0) == []
    bell.ring()
    selector.unwatch(bell.fileno())
    assert selector.poll(0) == []
    bell.close()
