"""Running litmus tests: real processes over one segment, some of them killed and replaced at random moments."""

from __future__ import annotations

import os
import random
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import multiprocess
from multiprocess.connection import wait
from multiprocess.process import BaseProcess as Process

from rotunda.shm.segment import Segment, create, new_instance
from tests.support.deadline import deadline_s

DEADLINE_S = 120.0
KILLED = -9
FORK = multiprocess.get_context("fork")

Body = Callable[[], None]


@contextmanager
def segment_of(size: int) -> Iterator[Segment]:
    """Yield a segment that lives as long as the test."""
    segment = create(f"/rotundatest-{new_instance()}-{secrets.token_hex(6)}", size)
    try:
        yield segment
    finally:
        segment.unlink()


def seeded() -> random.Random:
    """Return a source of randomness; its seed is printed with a failing test's output."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    return random.Random(seed)


def spin_until(condition: Callable[[], bool]) -> None:
    """Wait in a child, giving the processor away between looks; AssertionError after the deadline."""
    end = time.monotonic() + deadline_s(DEADLINE_S)
    while not condition():
        os.sched_yield()
        assert time.monotonic() < end, "the other process did not come"


def run_together(*bodies: Body) -> None:
    """Run each body in a process of its own; AssertionError unless all of them end well."""
    children = [FORK.Process(target=body) for body in bodies]
    for child in children:
        child.start()
    try:
        _join_all(children)
    finally:
        _end_all(children)


def run_with_deaths(bodies: list[Body], victims: list[int], deaths: int, chance: random.Random) -> int:
    """Run bodies as `run_together` does, killing and replacing one of `victims` at `deaths` random moments.

    Returns how many were killed in the midst of their work.
    """
    children = [FORK.Process(target=body) for body in bodies]
    killed = 0
    for child in children:
        child.start()
    try:
        for _ in range(deaths):
            victim = chance.choice(victims)
            children[victim].join(chance.uniform(0.0, 0.02))
            children[victim].kill()
            children[victim].join()
            assert children[victim].exitcode in (0, KILLED), "failed by itself"
            killed += children[victim].exitcode == KILLED
            children[victim] = FORK.Process(target=bodies[victim])
            children[victim].start()
        _join_all(children)
    finally:
        _end_all(children)
    return killed


def repeat_until_hit(run: Callable[[], int], least: int = 1) -> None:
    """Call `run`, which returns how many processes were killed in mid-run, until that number is reached.

    On a machine that pauses for a moment the run may end before any kill. AssertionError when that is no accident.
    """
    assert any(run() >= least for _ in range(5)), "hardly anybody was killed in the midst of work"


def _join_all(children: list[Process]) -> None:
    """Wait until all have ended well, or one has not: the others would wait for it in vain."""
    running = list(children)
    end = time.monotonic() + deadline_s(DEADLINE_S)
    while running and all(child.exitcode in (None, 0) for child in children):
        assert wait([child.sentinel for child in running], end - time.monotonic()), "still running"
        running = [child for child in running if child.exitcode is None]
    assert not [child.exitcode for child in children if child.exitcode]


def _end_all(children: list[Process]) -> None:
    for child in children:
        child.kill()
        child.join()
