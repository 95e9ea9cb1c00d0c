"""Transaction errors by version: older clients get INVALID_PRODUCER_EPOCH where newer ones get PRODUCER_FENCED."""

from __future__ import annotations

from rotunda.broker.ipc.request import Request
from rotunda.broker.protocol.error_codes import ErrorCode

#: From this version of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn on clients know PRODUCER_FENCED.
FENCED_FROM = 2

#: From these versions of TxnOffsetCommit on clients know TRANSACTION_ABORTABLE and expect CONCURRENT_TRANSACTIONS.
_ABORTABLE_FROM, _CONCURRENT_FROM = 4, 5


def for_version(error: int, request: Request, fenced_from: int = FENCED_FROM) -> int:
    """Return the error for the request's version."""
    if error == ErrorCode.PRODUCER_FENCED and request.api_version < fenced_from:
        return int(ErrorCode.INVALID_PRODUCER_EPOCH)
    return error


def for_offsets(error: int, request: Request) -> int:
    """Return the error of a transaction's coordinator, converted for TxnOffsetCommit."""
    if error == ErrorCode.PRODUCER_FENCED:
        return int(ErrorCode.INVALID_PRODUCER_EPOCH)
    if error == ErrorCode.TRANSACTION_ABORTABLE and request.api_version < _ABORTABLE_FROM:
        return int(ErrorCode.INVALID_TXN_STATE)
    if error == ErrorCode.CONCURRENT_TRANSACTIONS and request.api_version < _CONCURRENT_FROM:
        return int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return error
