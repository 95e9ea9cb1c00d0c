"""ListTransactions: every transactional id that matches the filters, from all coordinators (KIP-664)."""

from __future__ import annotations

from typing import Any

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.coordinator.transaction.admin import Listed, ListFilter
from rotunda.broker.coordinator.transaction.transaction import TransactionState
from rotunda.broker.ipc.request import Request
from rotunda.broker.metadata.topics.topic_regex import InvalidPatternError, compiled
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.sliced_responses import Lazily
from rotunda.broker.scheduling.long_responses import at_length, each_of
from rotunda.broker.scheduling.slices import Work
from rotunda.broker.security.acl.acls import ResourceType

_STATES = {state.text: state for state in TransactionState}


def handle_list_transactions(request: Request, broker: BrokerContext, body: Any) -> Work | dict[str, Any]:
    """Return id, producer id and state of each; unknown states are listed in the response and match nothing."""
    pattern = body.transactional_id_pattern or ""
    try:
        compiled(pattern)
    except InvalidPatternError:
        return {"error_code": int(ErrorCode.INVALID_REGULAR_EXPRESSION)}
    unknown = [text for text in body.state_filters if text not in _STATES]
    states = [_STATES[text] for text in set(body.state_filters) if text in _STATES]
    if unknown and not states:
        return at_length(_response(0, unknown, []))
    wanted = ListFilter(
        frozenset(states),
        frozenset(body.producer_id_filters),
        body.duration_filter,
        pattern,
    )
    return _list(request, broker, wanted, unknown)


def _list(request: Request, broker: BrokerContext, wanted: ListFilter, unknown: list[str]) -> Work:
    error, transactions = yield from broker.coordinators.transaction_admin.ask_list(wanted)
    if broker.metadata.authorizer is not None:
        seen: list[Listed] = []

        def choose(listed: Listed) -> None:
            if not broker.access.rejection(request, ResourceType.TRANSACTIONAL_ID, listed.transactional_id):
                seen.append(listed)

        yield from each_of(transactions, choose)
        transactions = seen
    return _response(error, unknown, transactions)


def _response(error: int, unknown: list[str], transactions: list[Listed]) -> dict[str, Any]:
    return {
        "error_code": error,
        "unknown_state_filters": unknown,
        "transaction_states": Lazily(transactions, _fields),
    }


def _fields(listed: Listed) -> dict[str, Any]:
    return {
        "transactional_id": listed.transactional_id,
        "producer_id": listed.producer_id,
        "transaction_state": listed.state,
    }
