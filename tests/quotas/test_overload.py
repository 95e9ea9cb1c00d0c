"""The overload controller on a clock of its own: a burst passes, a standing queue does not."""

from rotunda.broker.quotas.overload import FIRST_MS, INTERVAL_NS, MOST_MS, Overload

MS = 1_000_000
TARGET_MS = 10


def run(overload: Overload, intervals: int, *waits_ms: int, begin_ns: int = 0) -> int:
    """Report these waiting times in turn, one request every 5 ms; return the time at the end."""
    now_ns = begin_ns or 1_000_000_000
    end_ns = now_ns + intervals * INTERVAL_NS
    number = 0
    while now_ns < end_ns:
        overload.waited(waits_ms[number % len(waits_ms)] * MS, now_ns)
        number += 1
        now_ns += 5 * MS
    return now_ns


def controller() -> Overload:
    overload = Overload()
    overload.follow(TARGET_MS)
    return overload


def test_d23_a_standing_queue_throttles_longer_and_longer_and_ends() -> None:
    overload = controller()
    now_ns = run(overload, 2, TARGET_MS + 1)
    assert overload.throttle() == FIRST_MS
    now_ns = run(overload, 30, TARGET_MS + 1, begin_ns=now_ns)
    assert overload.throttle() == MOST_MS
    now_ns = run(overload, 4, 0, begin_ns=now_ns)
    assert FIRST_MS < overload.throttle() < MOST_MS
    run(overload, 20, 0, begin_ns=now_ns)
    throttled = overload.throttled
    assert overload.throttle() == 0
    assert overload.throttled == throttled == 3


def test_d23_a_burst_that_is_served_throttles_nobody() -> None:
    overload = controller()
    run(overload, 20, 500, 400, 300, 0)
    assert overload.throttle() == 0


def test_d23_what_waited_during_a_pause_is_no_queue() -> None:
    """The first request after a second without any may be part of a burst."""
    overload = controller()
    for second in range(1, 10):
        overload.waited(200 * MS, second * 1000 * MS)
    assert overload.throttle() == 0


def test_e10_without_a_target_nothing_is_measured() -> None:
    overload = Overload()
    run(overload, 20, 500)
    assert overload.throttle() == 0
    overload.follow(TARGET_MS)
    now_ns = run(overload, 20, 500)
    assert overload.throttle()
    overload.follow(0)
    run(overload, 1, 500, begin_ns=now_ns)
    assert overload.throttle() == 0
