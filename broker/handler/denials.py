"""The denials of a target, for the request log: what each request was denied, until its response is sent.

Runs in handler processes and the controller. The authorizer reports a denied operation without its request: it belongs
to the request that the process is in (`shm.tables.current_request`), however late its response is sent. A row of the
log holds a number; the name behind the number is sent to the recorder separately. The notes of a killed process are
lost, and its replacement repeats the checks.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from rotunda.broker.ipc.request_channel import REQUEST
from rotunda.broker.security.acl.acls import Operation, ResourceType
from rotunda.broker.security.acl.checks import ERRORS

if TYPE_CHECKING:
    from collections.abc import Callable

    from rotunda.shm.tables.current_request import CurrentRequest, Identity

#: Most unfinished requests with denials; beyond that all notes are dropped, and those rows have no denial.
MOST_REQUESTS: Final = 10_000
#: Recorded characters of a name: clients choose names.
MOST_CHARACTERS: Final = 512

#: Numbers of denials are below those of clients and of missing values.
_BELOW: Final = -2
_MASK: Final = (1 << 62) - 1


class Denials:
    """The denials of unfinished requests."""

    def __init__(self, view: memoryview, current: CurrentRequest, name: Callable[[int, bytes], None]) -> None:
        """Use ``name`` to send the recorder the text of a number."""
        self._view, self._current, self._name = view, current, name
        #: By request, the first denial of each error code.
        self._noted: dict[Identity, dict[int, int]] = {}

    def note(self, operation: int, resource_type: int, name: str) -> int:
        """Record a denial; return its number."""
        words = [Operation(operation).name, ResourceType(resource_type).title, name[:MOST_CHARACTERS]]
        text = json.dumps(words).encode()
        number = _BELOW - (hash(text) & _MASK)
        self._name(number, text)
        request = self._request()
        if request[0] > 0:
            if len(self._noted) >= MOST_REQUESTS:
                self._noted.clear()
            self._noted.setdefault(request, {}).setdefault(int(ERRORS[ResourceType(resource_type)]), number)
        return number

    def of(self, request: Identity, error: int) -> int:
        """Return the denial of a request whose response has an error code, 0 if there is none. HOT."""
        if not self._noted:
            return 0
        return self._noted.pop(request, {}).get(error, 0)

    def _request(self) -> Identity:
        at, identity = self._current.interrupted()
        if identity is not None or not at:
            return identity or (0, 0)
        connection_id, sequence, *_ = REQUEST.unpack_from(self._view, at)
        return connection_id, sequence
