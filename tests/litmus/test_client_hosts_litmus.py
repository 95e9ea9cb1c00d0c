"""Addresses of clients between processes: a reader sees the one of its connection or none, never another's or a mix."""

from __future__ import annotations

import os

from rotunda.shm.tables import client_hosts
from rotunda.shm.tables.client_hosts import ROWS, UNKNOWN, ClientHosts, ClientHostWriter, host_text, packed_host
from tests.litmus.two_processes import repeat_until_hit, run_together, run_with_deaths, seeded, segment_of

LAST = 20_000
GENERATION = 1 << 32


def host_of(number: int) -> str:
    """Return an address both of whose halves have the number."""
    high, low = number >> 16, number & 0xFFFF
    return host_text(packed_host(f"2001:{high:x}:{low:x}::{high + 1:x}:{low:x}"))


def open_and_close(segment: memoryview, last: int) -> None:
    """Assign one row to connection after connection, starting from a predecessor's last."""
    writer = ClientHostWriter(segment, 0)
    words = segment.cast("q")
    number = max(words[0] - GENERATION, 0) // ROWS
    while number < last:
        number += 1
        identity = GENERATION + number * ROWS
        writer.put(identity, host_of(number))
        writer.end(identity)


def read_up_to(segment: memoryview, last: int) -> None:
    """Look up the connection that has the row, until the last one has it."""
    words = segment.cast("q")
    number = 0
    while number < last:
        identity = words[0]
        number = max(identity - GENERATION, 0) // ROWS
        assert ClientHosts(segment, 1).of(identity) in (UNKNOWN, f"/{host_of(number)}")
        os.sched_yield()


def test_an_address_belongs_to_the_connection_that_was_asked_for() -> None:
    with segment_of(client_hosts.bytes_needed(1)) as segment:
        run_together(lambda: open_and_close(segment.view, LAST), lambda: read_up_to(segment.view, LAST))


def test_also_when_the_processor_is_killed_and_replaced() -> None:
    chance = seeded()

    def run() -> int:
        with segment_of(client_hosts.bytes_needed(1)) as segment:
            bodies = [lambda: open_and_close(segment.view, 10 * LAST), lambda: read_up_to(segment.view, 10 * LAST)]
            return run_with_deaths(bodies, [0], 15, chance)

    repeat_until_hit(run)
