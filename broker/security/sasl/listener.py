"""What a listener offers to clients that authenticate by SASL: its mechanisms, and the limits of their exchanges.

Pure. Made anew when a setting changes; exchanges under way go on with what they began with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from rotunda.broker.security.sasl.mechanism import SaslServer


class SaslListener(NamedTuple):
    """One listener. ``servers`` makes, by mechanism, the server of a new exchange."""

    name: str
    servers: Mapping[str, Callable[[], SaslServer]]
    max_receive_bytes: int
    #: By mechanism: how long a session may last before its client authenticates again; 0: for ever.
    max_reauth_ms: Mapping[str, int]

    @property
    def mechanisms(self) -> list[str]:
        """The mechanisms, as the answer to a SaslHandshake lists them."""
        return list(self.servers)
