"""ListTransactions: every transactional id that the filters let through, whichever handler coordinates it (KIP-664)."""

from __future__ import annotations

from typing import Any

from broker.apis.context import RequestContext
from broker.coordinator.transaction.admin import Listed, ListFilter
from broker.coordinator.transaction.transaction import TransactionState
from broker.metadata.topics.topic_regex import InvalidPatternError, compiled
from broker.protocol.error_codes import ErrorCode
from broker.protocol.sliced_responses import Lazily
from broker.scheduling.long_answers import at_length, each_of
from broker.scheduling.slices import Work
from broker.security.acl.acls import ResourceType

_STATES = {state.text: state for state in TransactionState}


def handle_list_transactions(context: RequestContext, request: Any) -> Work | dict[str, Any]:
    """Return id, producer id and state of each; states that there are not are named in the answer and match nothing."""
    pattern = request.transactional_id_pattern or ""
    try:
        compiled(pattern)
    except InvalidPatternError:
        return {"error_code": int(ErrorCode.INVALID_REGULAR_EXPRESSION)}
    unknown = [text for text in request.state_filters if text not in _STATES]
    states = [_STATES[text] for text in set(request.state_filters) if text in _STATES]
    if unknown and not states:
        return at_length(_response(0, unknown, []))
    wanted = ListFilter(
        frozenset(states),
        frozenset(request.producer_id_filters),
        request.duration_filter,
        pattern,
    )
    return _list(context, wanted, unknown)


def _list(context: RequestContext, wanted: ListFilter, unknown: list[str]) -> Work:
    error, transactions = yield from context.broker.coordinators.transaction_admin.ask_list(wanted)
    if context.broker.metadata.authorizer is not None:
        seen: list[Listed] = []

        def choose(listed: Listed) -> None:
            if not context.refusal(ResourceType.TRANSACTIONAL_ID, listed.transactional_id):
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
