"""The broker settings of client quotas: over which windows a rate is measured. Declarations only.

The quotas themselves are no settings: they are set for users and client ids while the broker runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.config.keys import Key, Kind, setting

#: What is kept of each client grows with the windows.
_MOST_WINDOWS = 100


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class QuotaSettings:
    """Windows of quotas. Only ever part of a BrokerConfig."""

    quota_window_num: int = setting(
        Key(
            name="quota.window.num",
            kind=Kind.INT,
            default=11,
            unit="windows",
            least=1,
            most=_MOST_WINDOWS,
            doc="Over how many windows the rates of clients are measured that have a producer_byte_rate, "
            "consumer_byte_rate or request_percentage, and those of connections.",
        )
    )
    quota_window_size_seconds: int = setting(
        Key(
            name="quota.window.size.seconds",
            kind=Kind.INT,
            default=1,
            unit="s",
            least=1,
            doc="Length of one of these windows. It is also the longest that a client is throttled at a time for "
            "its request_percentage, and that a new connection waits for its rate.",
        )
    )
    controller_quota_window_num: int = setting(
        Key(
            name="controller.quota.window.num",
            kind=Kind.INT,
            default=11,
            unit="windows",
            least=1,
            doc="How many windows' worth of its controller_mutation_rate a client may use at once.",
        )
    )
    controller_quota_window_size_seconds: int = setting(
        Key(
            name="controller.quota.window.size.seconds",
            kind=Kind.INT,
            default=1,
            unit="s",
            least=1,
            doc="Length of one of these windows.",
        )
    )
