"""Warns of expiring certificates, once a day from thirty days before their end.

Runs in the first processor, for all of them: they use the same certificates.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from rotunda.broker.text_table import counted

logger = logging.getLogger(__name__)

DAY_S: Final = 86_400
WARNED_BEFORE_S: Final = 30 * DAY_S


class CertificateExpiry:
    """The warnings already logged."""

    def __init__(self) -> None:
        #: By listener and end of its certificate: the time of the next warning.
        self._next_s: dict[tuple[str, int], float] = {}

    def run_once(self, now_s: float, ends: Mapping[str, int]) -> None:
        """Log the warnings that are due; ``ends``: by listener, in seconds since 1970."""
        for listener, end_s in ends.items():
            if end_s - now_s >= WARNED_BEFORE_S or now_s < self._next_s.get((listener, end_s), 0):
                continue
            self._next_s[listener, end_s] = now_s + DAY_S
            days = int((end_s - now_s) // DAY_S)
            when = f"ends in {counted(days, 'day')}, on" if days >= 0 else "is over since"
            logger.warning(
                "the certificate of listener %s %s %s: replace the file of ssl.keystore.location, then rotunda reload; "
                "connections stay",
                listener,
                when,
                datetime.fromtimestamp(end_s, UTC).isoformat(" ", "minutes"),
            )
