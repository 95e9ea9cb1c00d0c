"""The SASL settings of a listener: its mechanisms, and the limits of exchanges.

Pure. Replaced when a setting changes; running exchanges keep their settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from rotunda.broker.security.sasl.mechanism import SaslServer


class SaslListener(NamedTuple):
    """One listener. ``servers`` creates, by mechanism, the server of a new exchange."""

    name: str
    servers: Mapping[str, Callable[[], SaslServer]]
    max_receive_bytes: int
    #: By mechanism: maximum lifetime of a session before its client must re-authenticate; 0: no limit.
    max_reauth_ms: Mapping[str, int]

    @property
    def mechanisms(self) -> list[str]:
        """The mechanisms, in the order of a SaslHandshake response."""
        return list(self.servers)
