"""Slow patterns: no turn of a handler is spent on them alone.

Each reading of the clock advances it, so that a turn has time for a few steps.
"""

from __future__ import annotations

from typing import Any

from rotunda.broker.protocol.error_codes import ErrorCode
from tests.support.groups.requests import groups_of, joining
from tests.support.stepped_broker import Client, Sent, SteppedBroker
from tests.support.transactional import TransactionalProducer, answer_of, send

HEARTBEAT, LIST_TRANSACTIONS = 68, 66
HEAVY = "([ab]?){400}0.*"
TOPICS = {f"{number:0>8}-{'ab' * 100}": 1 for number in range(40)}
READING_NS = 500_000


def turns_until_answered(broker: SteppedBroker, sent: Sent, bystander: Client) -> int:
    """Return the number of turns; in each of them the bystander's request gets a response as well."""
    [group] = groups_of(broker, sent.target, 1)
    turns = 0
    while not sent.answers:
        asked = send(bystander, HEARTBEAT, 1, {"group_id": group, "member_id": "m", "member_epoch": 1})
        for target in range(len(broker.handlers)):
            broker.run_once(target)
        broker.drain()
        assert asked.answers, f"not answered in turn {turns}"
        turns += 1
        assert turns < 1000
    return turns


def initialised(broker: SteppedBroker, transactional_id: str) -> None:
    sent = TransactionalProducer(broker, transactional_id, newest=True).init()
    broker.settle()
    assert int(answer_of(sent).error_code) == 0


def list_transactions(broker: SteppedBroker, pattern: str) -> Sent:
    values = {"state_filters": [], "producer_id_filters": [], "transactional_id_pattern": pattern}
    return send(broker.client(), LIST_TRANSACTIONS, 2, values)


def test_a_subscription_with_a_pattern_is_resolved_between_other_requests(broker: SteppedBroker) -> None:
    _, *groups = groups_of(broker, 0, 3)
    fields: dict[str, Any] = {"subscribed_topic_names": None, "subscribed_topic_regex": HEAVY}
    bystander = broker.client()
    broker.clock.reading_ns = READING_NS
    sent = send(broker.client(), HEARTBEAT, 1, joining(groups[0], "m", **fields))
    assert turns_until_answered(broker, sent, bystander) > len(TOPICS) / 8
    answer = answer_of(sent)
    assert (int(answer.error_code), len(answer.assignment.topic_partitions)) == (0, len(TOPICS))
    # Another member with the pattern, and one of another group.
    for group in groups:
        again = send(broker.client(), HEARTBEAT, 1, joining(group, "n", **fields))
        assert turns_until_answered(broker, again, bystander) <= 3
        assert int(answer_of(again).error_code) == 0


def test_transactions_are_chosen_by_a_pattern_between_other_requests(broker: SteppedBroker) -> None:
    names = [f"0{number}-{'ab' * 350}" for number in range(30)]
    for name in names:
        initialised(broker, name)
    bystander = broker.client()
    broker.clock.reading_ns = READING_NS
    sent = list_transactions(broker, HEAVY)
    assert turns_until_answered(broker, sent, bystander) > 3
    assert [each.transactional_id for each in answer_of(sent).transaction_states] == sorted(names)


def test_ids_that_are_too_long_for_a_pattern(broker: SteppedBroker) -> None:
    """Kafka would match them, and block all other clients meanwhile."""
    initialised(broker, "ab" * 16_000)
    for pattern, error in ((HEAVY, ErrorCode.INVALID_REGULAR_EXPRESSION), ("ab.*", 0), ("(ab)+", 0)):
        sent = list_transactions(broker, pattern)
        broker.settle()
        assert int(answer_of(sent).error_code) == error
