"""The requests handled by a broker under test: rows of its request log, with the fields that tests need.

Runs in the process of the tests and reads finished files. To ensure that they contain all earlier requests, it sends
one marker request to each processor, and waits for their rows.
"""

from __future__ import annotations

import select
import uuid
from contextlib import ExitStack, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from rotunda.broker.client.network.blocking_client import CLIENT_ID, BlockingClient
from rotunda.broker.errors import RotundaError
from rotunda.broker.protocol.api_keys import text_of
from rotunda.broker.request_log.file_reader import Query, Row, read
from rotunda.broker.request_log.part_files import DIRECTORY, FOLLOWED
from rotunda.broker.text_table import counted
from rotunda.shm.rings.recorder_rings import RecorderSettings
from rotunda.shm.segment import attach

if TYPE_CHECKING:
    from rotunda.broker.clock import SystemClock
    from rotunda.broker.runtime.run_dir import RunRecord

WAIT_S: Final = 60.0

#: Time after which another marker is sent.
MARK_AGAIN_S: Final = 2.0
_LOOK_AGAIN_S: Final = 0.02
_OWN: Final = "rotunda-requests-"


class Request(NamedTuple):
    """One request and its result; ``error`` is Kafka's name of the response's first error, or None."""

    time: datetime
    api: str
    version: int
    client_id: str | None
    software: str | None
    topic: str | None
    partition: int | None
    records: int | None
    error: str | None
    request_bytes: int
    response_bytes: int
    total_us: int
    #: The injected faults: error, delay, disconnect, throttle, or several joined by +.
    injected: str | None

    def __str__(self) -> str:
        """Return a report line."""
        about = "" if self.topic is None else f" {self.topic}-{self.partition}"
        if self.records is not None:
            about += f" ({counted(self.records, 'record')})"
        outcome = self.error or ("no answer" if "disconnect" in (self.injected or "") else "ok")
        injected = "" if self.injected is None else f" (injected: {self.injected})"
        sender = f"{self.time:%H:%M:%S.%f} {self.client_id}"
        return f"{sender}: {self.api} v{self.version}{about}: {outcome}, {self.total_us} us{injected}"


#: Filters of a list: an API's name as Kafka writes it, a client id, a topic. None: any.
Wanted = tuple[str | None, str | None, str | None]


def requests_of(record: RunRecord, wanted: Wanted, since_us: int, clock: SystemClock) -> list[Request]:
    """Return the requests completed since a time, oldest first. Raises RotundaError if there is no request log."""
    root = Path(record.data_dir) / DIRECTORY
    if not _is_kept(record):
        raise RotundaError("this broker keeps no request log: request.log.enable is false")
    now_ns = clock.monotonic_ns()
    deadline_ns, marked_ns = now_ns + int(WAIT_S * 1e9), now_ns
    mark = _mark(record)
    while True:
        with suppress(FileNotFoundError):
            # The recorder starts late, and creates the directory.
            (root / FOLLOWED).touch()
        rows = read(root, "requests", Query(since_us))
        if sum(row["clientId"] == mark for row in rows) >= record.processors:
            break
        now_ns = clock.monotonic_ns()
        if now_ns >= deadline_ns:
            raise RotundaError(f"the request log in {root} does not have the response of {WAIT_S:g} s ago")
        if now_ns - marked_ns >= MARK_AGAIN_S * 1e9:
            # An overloaded log is sampled, and may not contain the marker.
            marked_ns, mark = now_ns, _mark(record)
        select.select((), (), (), _LOOK_AGAIN_S)
    found = (_request(row) for row in sorted(rows, key=lambda row: row["time"]) if not _is_own(row["clientId"]))
    return [each for each in found if _is_wanted(each, *wanted)]


def _mark(record: RunRecord) -> str:
    """Send each processor a request with a new client id, and return the id."""
    mark = _OWN + uuid.uuid4().hex
    with ExitStack() as stack:
        # The acceptor assigns connections to the processors in rotation, so that each gets one.
        for _ in range(record.processors):
            stack.enter_context(BlockingClient(record.bootstrap, client_id=mark))
    return mark


def _is_kept(record: RunRecord) -> bool:
    return RecorderSettings(attach(f"/rotunda-{record.instance}-recorder").view).enabled


def _is_own(client_id: str | None) -> bool:
    return client_id is not None and (client_id == CLIENT_ID or client_id.startswith(_OWN))


def _is_wanted(request: Request, api: str | None, client_id: str | None, topic: str | None) -> bool:
    return api in (None, request.api) and client_id in (None, request.client_id) and topic in (None, request.topic)


def _request(row: Row) -> Request:
    software = " ".join(filter(None, (row["softwareName"], row["softwareVersion"]))) or None
    return Request(
        row["time"], text_of(row["requestApiKeyName"]), row["requestApiVersion"], row["clientId"], software,
        row["topic"], row["partition"], row["records"], row["errorName"] if row["errorCode"] else None,
        row["requestBytes"], row["responseBytes"], row["totalTimeUs"], row["injected"],
    )  # fmt: skip
