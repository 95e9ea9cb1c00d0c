"""AppendLinger: few commits are written at once, many wait for the end of their window."""

from broker.coordinator.append_linger import MANY_APPENDS, AppendLinger

MS = 1_000_000


def test_few_never_wait() -> None:
    linger = AppendLinger(lambda: 5)
    for now_ms in range(100):
        linger.turn(now_ms * MS)
        assert linger.is_over
        linger.written(MANY_APPENDS // 5 - 1)


def test_after_many_the_next_window_collects_until_few_come() -> None:
    linger = AppendLinger(lambda: 5)
    linger.turn(100 * MS)
    linger.written(MANY_APPENDS)
    linger.turn(104 * MS)
    assert linger.is_over, "nobody waits before it is known that many come"
    linger.turn(105 * MS)
    assert linger.is_over, "a window's end"
    linger.written(MANY_APPENDS - 1)
    for now_ms in (106, 109):
        linger.turn(now_ms * MS)
        assert not linger.is_over
    assert linger.end_ns == 110 * MS
    linger.turn(110 * MS)
    assert linger.is_over
    linger.turn(111 * MS)
    assert linger.is_over, "they were few in the window before"


def test_without_a_length_nothing_waits() -> None:
    linger = AppendLinger(lambda: 0)
    for now_ms in range(10):
        linger.turn(now_ms * MS)
        linger.written(1000)
        assert linger.is_over
