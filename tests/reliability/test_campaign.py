"""A short campaign against a real broker: everything is done at least once, and nothing is lost."""

import faulthandler
from pathlib import Path

import pytest

from ops.reliability import report
from ops.reliability.campaign import ATTACKS, Campaign, Orders
from ops.reliability.chance import source

MINUTES = 0.2
#: Of each role; other tests share the machine.
KILLS = 1
FRAMES = 4_000


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nothing_is_lost_whatever_is_done(tmp_path: Path) -> None:
    # It needs longer than the timeout of a hanging test.
    faulthandler.cancel_dump_traceback_later()
    seed = source(0, str(tmp_path)).randrange(2**32)
    print(f"seed {seed}")
    orders = Orders(seed=seed, minutes=MINUTES, kills=KILLS, frames=FRAMES, attacks=ATTACKS)
    result = Campaign(orders, tmp_path, print, keeps_data=True).run()
    print(report.text(result))
    assert not result.failures
    assert list((tmp_path / "disk" / "data" / "request-log").rglob("*.parquet"))
    assert not result.is_bad
    assert all(tally.read for tally in result.tallies.values())
    assert all(not row.closed for row in result.pauses if row.cause == "anything else")
