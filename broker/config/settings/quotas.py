"""The broker settings of quotas: the windows of a rate, and the limits for all clients together.

Declarations only. The quotas of users and client ids are not settings: they are set while the broker runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from rotunda.broker.config.keys import MAX_LONG, Key, Kind, setting

#: The memory for each client grows with the windows.
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
    broker_quota_produce_bytes: int = setting(
        Key(
            name="broker.quota.produce.bytes",
            kind=Kind.LONG,
            default=MAX_LONG,
            unit="bytes/s",
            least=1,
            dynamic=True,
            doc="How many bytes of Produce all clients together may send in a second. Who sends when they have is "
            "throttled as by a quota of its own, for the length of all windows at most.",
        )
    )
    broker_quota_fetch_bytes: int = setting(
        Key(
            name="broker.quota.fetch.bytes",
            kind=Kind.LONG,
            default=MAX_LONG,
            unit="bytes/s",
            least=1,
            dynamic=True,
            doc="How many bytes of answers to Fetch all clients together may get in a second.",
        )
    )
    broker_quota_request_rate: int = setting(
        Key(
            name="broker.quota.request.rate",
            kind=Kind.LONG,
            default=MAX_LONG,
            unit="requests/s",
            least=1,
            dynamic=True,
            doc="How many requests all clients together may have answered in a second.",
        )
    )
    overload_queue_time_ms: int = setting(
        Key(
            name="overload.queue.time.ms",
            kind=Kind.INT,
            default=0,
            unit="ms",
            least=0,
            dynamic=True,
            doc="While no request waits less than this for its handler, the handler throttles all clients, longer and "
            "longer, so that requests wait at the clients and not in the broker. 0: never.",
        )
    )
    automq_retry_storm_backoff_enabled: bool = setting(
        Key(
            name="automq.retry.storm.backoff.enabled",
            kind=Kind.BOOLEAN,
            default=False,
            dynamic=True,
            doc="Hold back the answers to a client that fails again and again: on each connection, from the second "
            "error of a leader or coordinator, or the sixth of any kind, within a second, until there has been none "
            "for a second. AutoMQ's setting.",
        )
    )
    automq_retry_storm_backoff_max_delay_ms: int = setting(
        Key(
            name="automq.retry.storm.backoff.max.delay.ms",
            kind=Kind.INT,
            default=1000,
            unit="ms",
            least=0,
            most=10_000,
            dynamic=True,
            doc="For how long each of them is held back; one to a Fetch no longer than the Fetch would have waited.",
        )
    )
    broker_quota_white_list_user: tuple[str, ...] = setting(
        Key(
            name="broker.quota.white.list.user",
            kind=Kind.LIST,
            default=(),
            dynamic=True,
            doc="Users for whom the broker.quota settings do not hold, and who are not counted there.",
        )
    )
    broker_quota_white_list_client_id: tuple[str, ...] = setting(
        Key(
            name="broker.quota.white.list.client.id",
            kind=Kind.LIST,
            default=(),
            dynamic=True,
            doc="Client ids for which the broker.quota settings do not hold, and which are not counted there.",
        )
    )
    broker_quota_white_list_listener: tuple[str, ...] = setting(
        Key(
            name="broker.quota.white.list.listener",
            kind=Kind.LIST,
            default=(),
            dynamic=True,
            doc="Listeners whose clients the broker.quota settings do not hold for, such as one for administrators.",
        )
    )
