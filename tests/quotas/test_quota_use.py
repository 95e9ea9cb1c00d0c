"""Clients' use of their quotas, as listed for viewers."""

from rotunda.broker.metrics.quota_use import ClientUse, clients_use
from rotunda.broker.quotas.entities import Limit
from rotunda.broker.quotas.meters import Book, RateMeter
from rotunda.shm.tables.quota_rates import Windows
from rotunda.shm.tables.quota_tables import PRODUCE, QuotaTables, QuotaTableWriter

WINDOWS = Windows(3, 2000)
NOW_NS = 10**13
HOUR_NS = 3600 * 10**9


def tables_after(*used: tuple[str, float, int, int]) -> QuotaTables:
    """Return the tables of two owners after clients have used (id, limit, bytes, when in ns), by turns."""
    view = memoryview(bytearray(QuotaTables.bytes_needed(WINDOWS.number, 2)))
    QuotaTables.initialise(view, *WINDOWS)
    tables = QuotaTables.attached(view)
    books = [Book(QuotaTableWriter(tables.of(owner)), tables.but(owner), WINDOWS) for owner in range(2)]
    for number, (client_id, limit, size, now_ns) in enumerate(used):
        meter = RateMeter(books[number % 2], PRODUCE, Limit("", client_id, limit))
        ms = meter.charge(size, now_ns)
        if ms:
            meter.throttled(ms, now_ns)
    return tables


def uses(tables: QuotaTables) -> list[ClientUse]:
    return clients_use(tables, NOW_NS // 1_000_000)


def test_a_rate_is_over_the_windows_of_the_broker_and_all_owners() -> None:
    """Three windows of two seconds, of which the first two count as full and empty."""
    [use] = uses(tables_after(("a", 1e6, 30_000, NOW_NS), ("a", 1e6, 10_000, NOW_NS)))
    assert (use.client_id, use.limit, use.rate, use.throttled) == ("a", 1e6, 10_000.0, 0)


def test_who_is_throttled_is_first_then_who_is_nearest_to_the_limit() -> None:
    far, near, over = (("far", 1e6, 100_000, NOW_NS), ("near", 1e5, 300_000, NOW_NS), ("over", 1e3, 100_000, NOW_NS))
    found = uses(tables_after(far, near, over))
    assert [each.client_id for each in found] == ["over", "near", "far"]
    assert [each.throttled for each in found] == [1, 0, 0]


def test_e10_who_has_used_nothing_for_an_hour_is_not_listed() -> None:
    late = NOW_NS - HOUR_NS + 10**9
    found = uses(tables_after(("old", 1e6, 100_000, NOW_NS - HOUR_NS), ("late", 1e6, 100_000, late)))
    assert [(each.client_id, each.rate) for each in found] == [("late", 0.0)]
