"""The broker settings of quotas: the windows of a rate, and the limits for all clients together.

Declarations only. The quotas of users and client ids are not settings: they are set while the broker runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from rotunda.broker.config.keys import MAX_LONG, Kind, setting

#: The memory for each client grows with the windows.
_MOST_WINDOWS = 100


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class QuotaSettings:
    """Windows of quotas. A part of BrokerConfig."""

    quota_window_num: int = setting(
        Kind.INT,
        11,
        unit="windows",
        least=1,
        most=_MOST_WINDOWS,
        doc="Number of windows over which the rates of connections and of clients with a producer_byte_rate, "
        "consumer_byte_rate or request_percentage are measured.",
    )
    quota_window_size_seconds: int = setting(
        Kind.INT,
        1,
        unit="s",
        least=1,
        doc="Length of a window. It is also the longest throttle time for request_percentage, and the longest "
        "wait of a new connection for its rate.",
    )
    controller_quota_window_num: int = setting(
        Kind.INT,
        11,
        unit="windows",
        least=1,
        doc="Number of windows of controller_mutation_rate that a client can use at once.",
    )
    controller_quota_window_size_seconds: int = setting(
        Kind.INT, 1, unit="s", least=1, doc="Length of a window of controller_mutation_rate."
    )
    broker_quota_produce_bytes: int = setting(
        Kind.LONG,
        MAX_LONG,
        unit="bytes/s",
        least=1,
        dynamic=True,
        doc="Maximum rate of Produce bytes, all clients together. Above it senders are throttled as by a quota of "
        "their own, for the length of all windows at most.",
    )
    broker_quota_fetch_bytes: int = setting(
        Kind.LONG,
        MAX_LONG,
        unit="bytes/s",
        least=1,
        dynamic=True,
        doc="Maximum rate of Fetch response bytes, all clients together.",
    )
    broker_quota_request_rate: int = setting(
        Kind.LONG,
        MAX_LONG,
        unit="requests/s",
        least=1,
        dynamic=True,
        doc="Maximum rate of requests, all clients together.",
    )
    overload_queue_time_ms: int = setting(
        Kind.INT,
        0,
        least=0,
        dynamic=True,
        doc="Queue time above which a handler throttles all clients. While every request waits longer, throttle "
        "times grow, so that requests wait in the clients and not in the broker. 0: never.",
    )
    automq_retry_storm_backoff_enabled: bool = setting(
        Kind.BOOLEAN,
        False,
        dynamic=True,
        doc="Delay responses to a client that fails repeatedly. It begins on a connection with the second error "
        "of a leader or coordinator, or the sixth of any kind, within a second, and ends after a second "
        "without one. AutoMQ's setting.",
    )
    automq_retry_storm_backoff_max_delay_ms: int = setting(
        Kind.INT,
        1000,
        least=0,
        most=10_000,
        dynamic=True,
        doc="Delay of each such response; of a Fetch no longer than the fetch may wait.",
    )
    broker_quota_white_list_user: tuple[str, ...] = setting(
        Kind.LIST, (), dynamic=True, doc="Users exempt from the broker.quota settings, and not counted there."
    )
    broker_quota_white_list_client_id: tuple[str, ...] = setting(
        Kind.LIST, (), dynamic=True, doc="Client ids exempt from the broker.quota settings, and not counted there."
    )
    broker_quota_white_list_listener: tuple[str, ...] = setting(
        Kind.LIST,
        (),
        dynamic=True,
        doc="Listeners exempt from the broker.quota settings, such as one for administrators.",
    )
