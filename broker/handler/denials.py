"""The denials of a target, for the request log: which request was refused what, until it is answered.

Runs in handler processes and the controller. The authorizer says what is denied and not to whom: it is to the request
that the process is in (`shm.tables.current_request`), however late that is answered. A row has a number, and what that
stands for goes to the recorder by itself. What a killed process has noted goes with it: its replacement asks again.
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

#: Requests with something denied that are not answered; beyond that the rows of all of them go without.
MOST_REQUESTS: Final = 10_000
#: Of a name so much is recorded: clients choose names.
MOST_CHARACTERS: Final = 512

#: Numbers of denials are below those of clients and of what has none.
_BELOW: Final = -2
_MASK: Final = (1 << 62) - 1


class Denials:
    """What has been denied to requests that are not answered yet."""

    def __init__(self, view: memoryview, current: CurrentRequest, name: Callable[[int, bytes], None]) -> None:
        """``name`` says to the recorder what a number stands for."""
        self._view, self._current, self._name = view, current, name
        #: By request, the first denial that has an error code.
        self._noted: dict[Identity, dict[int, int]] = {}

    def note(self, operation: int, resource_type: int, name: str) -> int:
        """Note a denial; return its number."""
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
        """Return what was denied to a request that is answered with an error code, 0 if nothing was. HOT."""
        if not self._noted:
            return 0
        return self._noted.pop(request, {}).get(error, 0)

    def _request(self) -> Identity:
        """Return the request that the process is in."""
        at, identity = self._current.interrupted()
        if identity is not None or not at:
            return identity or (0, 0)
        connection_id, sequence, *_ = REQUEST.unpack_from(self._view, at)
        return connection_id, sequence
