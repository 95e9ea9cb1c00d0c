"""Unmodified clients whose requests fail again and again at a broker that delays such responses (`D22`).

`tests/integration/test_retry_storms.py` has Python's clients in ops/test.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.test_clients_under_limits import CLIENT, PROGRAMS, TOPIC, run
from tests.integration.test_retry_storms import broker, delayed
from tests.support.deadline import wait_until

pytestmark = pytest.mark.compat

RECORDS = 25
#: Far below the timeouts of clients; two of them within a second suffice.
FAILURES = 6
#: By client, its error. franz-go retries a leader after a second at the soonest, and is no storm there.
FAULTS: dict[str, tuple[str, str, str | None]] = {
    "franz-go": ("InitProducerId", "COORDINATOR_NOT_AVAILABLE", None),
}
OF_LEADERS = ("Produce", "NOT_LEADER_OR_FOLLOWER", TOPIC)


@pytest.mark.needs("java", "go")
@pytest.mark.parametrize("program", PROGRAMS)
def test_d22_a_client_that_is_slowed_down_recovers_by_itself(tmp_path: Path, program: str) -> None:
    """Its application sees no error, and all its records are accepted."""
    api, error, topic = FAULTS.get(program, OF_LEADERS)
    command = PROGRAMS[program]
    with broker(tmp_path, automq_retry_storm_backoff_enabled="true") as running:
        running.create_topic(TOPIC)

        def fail() -> bool:
            fault = running.fail(api, error, times=FAILURES, topic=topic)
            seen = run([*command, running.bootstrap, CLIENT, TOPIC, "produce", str(RECORDS)], lambda: None)
            assert seen["errors"] == [], seen
            assert seen["done"] == RECORDS, seen
            assert fault.count == FAILURES
            return delayed(running) > 0

        wait_until(fail, "an answer to be held back")
