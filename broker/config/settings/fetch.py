"""The broker settings of Fetch. Declarations only; `broker_config` joins them with the others."""

from __future__ import annotations

from dataclasses import dataclass

from rotunda.broker.config.keys import Kind, setting


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class FetchSettings:
    """The size of a Fetch response, and the number of sessions. A part of BrokerConfig."""

    fetch_max_bytes: int = setting(
        Kind.INT,
        57671680,
        least=1024,
        doc="Maximum bytes of records in a Fetch response, whatever the client requests; a larger first batch is "
        "still returned.",
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        Kind.INT,
        1000,
        unit="sessions",
        least=0,
        doc="Maximum number of fetch sessions, in equal shares of the handlers. Consumers without a session list "
        "all their partitions in every fetch.",
    )
