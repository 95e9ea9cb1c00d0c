"""A few thousand mutated frames and records of unauthenticated clients, while another client is served."""

from pathlib import Path

import pytest

from ops.reliability import siege
from ops.reliability.chance import source

FRAMES = 3000


@pytest.mark.timeout(300)
def test_strangers_harm_nobody(tmp_path: Path) -> None:
    """Before, within and after SASL, in plain text and inside TLS, and TLS itself: all get a response or are closed."""
    seed = source(0, str(tmp_path)).randrange(2**32)
    print(f"seed {seed}")
    found = siege.Siege(tmp_path, seed, FRAMES, print).run()
    print(siege.text(found))
    assert found.failures == []
    assert found.numbers["answered"] > FRAMES / 10
    assert found.numbers["closed"] > FRAMES / 10
