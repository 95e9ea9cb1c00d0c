"""Converts rows as pushed by processors to the values of the columns, a row group at a time and never row by row.

Runs in the recorder. Durations are differences of the stamps in whole microseconds, so that they add up to the total.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rotunda.broker.protocol.api_keys import DEPRECATED_UP_TO, ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.records.record_batch import CODECS
from rotunda.broker.request_log.names import ClientNames, Clients, Subjects, distinct, names_of
from rotunda.broker.request_log.slow_requests import is_slow
from rotunda.broker.request_log.values import Coded, Nullable, Values
from rotunda.shm.metrics.catalogue import CLOSE_CAUSES
from rotunda.shm.recorder_layout import (
    HELD_BACK,
    INJECTED,
    INJECTED_SHIFT,
    MIXED_CODECS,
    NOT_REPORTED,
    THROTTLED_BY,
    THROTTLED_BY_MASK,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.void]

_STAMPS = ("received_ns", "dequeued_ns", "local_complete_ns", "response_complete_ns", "taken_ns", "end_ns")
_PHASES = ("requestQueueTimeUs", "localTimeUs", "remoteTimeUs", "responseQueueTimeUs", "sendTimeUs")
_API_NAMES = {int(key): key.name for key in ApiKey}
#: By a row's codec field plus one: none, the codecs, unknown numbers, several in one request.
_CODECS = (None, *CODECS, *map(str, range(len(CODECS), MIXED_CODECS)), "mixed")
#: By the bits of injected faults.
_INJECTED = [
    "+".join(name for bit, name in enumerate(INJECTED) if bits >> bit & 1) or None for bits in range(1 << len(INJECTED))
]
_THROTTLED_BY = (None, *THROTTLED_BY, HELD_BACK)
_ERROR_NAMES = {int(code): code.name for code in ErrorCode}


def times_us(monotonic_ns: NDArray[np.int64], epoch_ns: int) -> NDArray[np.int64]:
    """Return monotonic times as microseconds since the epoch, which began at `epoch_ns` of the monotonic clock."""
    found: NDArray[np.int64] = (monotonic_ns - epoch_ns) // 1000
    return found


def request_values(rows: Rows, epoch_ns: int, slow_ns: int, clients: Clients, subjects: Subjects) -> dict[str, Values]:
    """Return the columns of the dataset requests. `partition_row` must hold subjects by now."""
    api_keys, api_codes = distinct(rows["api_key"])
    deprecated_up_to = np.array([DEPRECATED_UP_TO.get(key, -1) for key in api_keys], np.int16)[api_codes]
    errors, error_codes = distinct(rows["error_code"])
    found, subject_codes = distinct(rows["partition_row"])
    names = [subjects.name(subject) for subject in found]
    partitions = np.array([partition for _, partition in names], np.int32)[subject_codes]
    numbers, codes = distinct(rows["client"])
    values: dict[str, Values] = {
        "time": times_us(rows["received_ns"], epoch_ns),
        "requestApiKey": rows["api_key"],
        "requestApiKeyName": Coded(api_codes, [_API_NAMES.get(key, str(key)) for key in api_keys]),
        "requestApiVersion": rows["api_version"],
        "requestApiVersionDeprecated": rows["api_version"] <= deprecated_up_to,
        "correlationId": rows["correlation_id"],
        **client_values(names_of(clients, numbers), codes),
        "handler": rows["handler"],
        "topic": Coded(subject_codes, [topic for topic, _ in names]),
        "partition": Nullable(partitions, partitions < 0),
        "partitionCount": rows["partition_count"],
        "records": Nullable(rows["record_count"], rows["record_count"] < 0),
        "requestBytes": rows["request_bytes"],
        "responseBytes": rows["response_bytes"],
        "errorCode": rows["error_code"],
        "errorName": Coded(error_codes, [_ERROR_NAMES.get(code, str(code)) for code in errors]),
        "acks": Nullable(rows["acks"], rows["acks"] == NOT_REPORTED),
        "isolationLevel": Nullable(rows["isolation_level"], rows["isolation_level"] == NOT_REPORTED),
        "minBytes": Nullable(rows["min_bytes"], rows["min_bytes"] < 0),
        "throttleTimeUs": rows["throttle_ms"].astype(np.int64) * 1000,
        "slow": is_slow(rows, slow_ns),
        "sampleWeight": rows["weight"],
        "codec": Coded(np.maximum(rows["codec"].astype(np.int64), -1) + 1, _CODECS),
        "recordBytes": Nullable(rows["record_bytes"], rows["record_bytes"] < 0),
        "maxWaitMs": Nullable(rows["max_wait_ms"], rows["max_wait_ms"] < 0),
        "throttledBy": Coded(rows["throttled_by"].astype(np.int64) & THROTTLED_BY_MASK, _THROTTLED_BY),
        "injected": Coded(rows["throttled_by"].astype(np.int64) >> INJECTED_SHIFT, _INJECTED),
        **denial_values(rows, clients),
    }
    # A clamped duration must not make the others too long: the stamps are made to rise.
    stamps = np.maximum.accumulate(np.stack([rows[name] // 1000 for name in _STAMPS]), axis=0)
    values.update(zip(_PHASES, np.diff(stamps, axis=0), strict=True))
    values["totalTimeUs"] = stamps[-1] - stamps[0]
    return values


def denial_values(rows: Rows, clients: Clients) -> dict[str, Values]:
    """Return the columns of a denial."""
    numbers, codes = distinct(rows["denial"])
    denials = [clients.denial(number) for number in numbers]
    return {
        "deniedOperation": Coded(codes, [each.operation for each in denials]),
        "deniedResourceType": Coded(codes, [each.resource_type for each in denials]),
        "deniedResource": Coded(codes, [each.resource for each in denials]),
    }


def connection_values(events: Rows, epoch_ns: int, clients: Clients) -> dict[str, Values]:
    """Return the columns of the dataset connections."""
    opened = events["cause"] < 0
    numbers, codes = distinct(events["client"])
    return {
        "time": times_us(events["time_ns"], epoch_ns),
        "event": Coded(opened.astype(np.int64), ["close", "open"]),
        **client_values(names_of(clients, numbers), codes),
        "cause": Coded(events["cause"].astype(np.int64) + 1, [None, *CLOSE_CAUSES]),
        "durationUs": Nullable((events["time_ns"] - events["opened_ns"]) // 1000, opened),
        "requests": events["requests"],
        "requestBytes": events["request_bytes"],
        "responseBytes": events["response_bytes"],
        "errors": events["errors"],
    }


def client_values(names: list[ClientNames], codes: NDArray[np.int64]) -> dict[str, Values]:
    """Return the columns of the client."""
    return {
        "connection": Coded(codes, [each.connection for each in names]),
        "clientId": Coded(codes, [each.client_id for each in names]),
        "softwareName": Coded(codes, [each.software_name for each in names]),
        "softwareVersion": Coded(codes, [each.software_version for each in names]),
        "address": Coded(codes, [each.address for each in names]),
        "principal": Coded(codes, [each.principal for each in names]),
        "securityProtocol": Coded(codes, [each.security_protocol for each in names]),
        "listener": Coded(codes, [each.listener for each in names]),
        "processor": np.array([each.processor for each in names], np.int16)[codes],
    }


def plain_values(rows: list[dict[str, Any]], names: list[str]) -> dict[str, list[Any]]:
    """Return the columns of few rows, passed one by one."""
    return {name: [row[name] for row in rows] for name in names}
