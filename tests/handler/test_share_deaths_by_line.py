"""The owner of a share group dies before each line of the turn that stores acknowledgements.

After each death another member fetches. What was accepted in an answered request does not come again, a delivery count
that was stored does not decrease, and in the end nothing is missing.
"""

from __future__ import annotations

from typing import Any

import pytest

from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.shm.tables.process_slots import PROCESSOR
from tests.support.record_batches import record_batch
from tests.support.sampling import Sampling
from tests.support.share_consumer import Acquired
from tests.support.stepped_broker import Sent, SteppedBroker
from tests.support.stepped_share_consumer import SteppedShareConsumer, initialize, response_to

pytestmark = pytest.mark.stepped({})

TOPIC = "topic"
ACCEPT, RELEASE = 1, 2
RECORDS = 4
#: A record is accepted at the latest at this delivery, well before the limit.
LAST_DELIVERY = 3


class Trials:
    """The state of the group by the responses that clients received."""

    def __init__(self, broker: SteppedBroker) -> None:
        self.broker = broker
        broker.context.slots.set_generation(PROCESSOR, 0, 1)
        broker.create(TOPIC, 1)
        self.topic_id = broker.topic(TOPIC).topic_id
        initialize(broker, self.topic_id)
        self.accepted: set[int] = set()
        self.unanswered: set[int] = set()
        #: By offset, the delivery count of a release that was answered.
        self.released: dict[int, int] = {}
        self.written = 0

    def begin(self, member: str) -> tuple[SteppedShareConsumer, Acquired]:
        """Write records; return a new member and all that it acquires."""
        batch = record_batch([b"%d" % number for number in range(RECORDS)])
        self.broker.client().produce([(TOPIC, 0, batch)])
        self.written += RECORDS
        self.broker.settle()
        consumer = SteppedShareConsumer(self.broker, self.topic_id, member)
        found = consumer.fetch().get(0)
        acquired = found.acquired if found else []
        for first, last, count in acquired:
            for offset in range(first, last + 1):
                assert offset not in self.accepted, f"{offset} comes again"
                assert count > self.released.get(offset, 0), f"the delivery count of {offset} decreased"
        return consumer, acquired

    def answered(self, sent: Sent, types: dict[int, tuple[int, int]]) -> None:
        """Record the outcome of acknowledgements: by offset, the type and the delivery count."""
        response = response_to(sent)
        parts = [part for topic in response.responses for part in topic.partitions]
        is_applied = not response.error_code and parts[0].acknowledge_error_code == 0
        if not is_applied:
            assert response.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND, response
        for offset, (kind, count) in types.items():
            if kind == ACCEPT:
                (self.accepted if is_applied else self.unanswered).add(offset)
            elif is_applied:
                self.released[offset] = count


def acknowledgements(acquired: Acquired) -> tuple[list[dict[str, Any]], dict[int, tuple[int, int]]]:
    """Return batches that accept all but the last record of each range, and the type and count by offset."""
    batches, types = [], {}
    for first, last, count in acquired:
        kinds = [ACCEPT] * (last - first + 1)
        if count < LAST_DELIVERY:
            kinds[-1] = RELEASE
        batches.append({"first_offset": first, "last_offset": last, "acknowledge_types": kinds})
        types |= {first + at: (kind, count) for at, kind in enumerate(kinds)}
    return batches, types


def test_the_owner_dies_at_any_line_of_an_acknowledgement(broker: SteppedBroker, sampling: Sampling) -> None:
    """S87, S96-S98."""
    trials = Trials(broker)
    for line in sampling.walk(3):
        consumer, acquired = trials.begin(f"member-{line}")
        batches, types = acknowledgements(acquired)
        sent = consumer.send(batches, max_records=0)
        died = broker.replaced_at_line(sent.target, line)
        broker.settle()
        trials.answered(sent, types)
        broker.forget_clients()
        if not died:
            break
    assert line > 100
    for last in range(2 * LAST_DELIVERY):
        consumer, acquired = trials.begin(f"last-{last}")
        batches, types = acknowledgements(acquired)
        sent = consumer.send(batches, share_session_epoch=-1)
        broker.settle()
        trials.answered(sent, types)
    missing = set(range(trials.written - RECORDS * LAST_DELIVERY)) - trials.accepted - trials.unanswered
    assert not missing
