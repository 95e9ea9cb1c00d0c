"""Limits of the numbers of processors and handlers: Kafka's rule for changes (`A28`, `E04`), and the initial numbers.

The rule runs in the controller before it stores a change; the supervisor reads the numbers before it creates shared
memory and processes. Pure except for reading the metadata file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from rotunda.broker.errors import ApiError, ConfigError
from rotunda.broker.metadata.configs.broker_settings import BrokerSettings, settings_in_force
from rotunda.broker.metadata.configs.listener_changes import check_listeners
from rotunda.broker.metadata.configs.stored_values import SetAside
from rotunda.broker.metadata.store.entity_store import BROKER
from rotunda.broker.metadata.store.metadata_file import metadata_path
from rotunda.broker.metadata.store.metadata_reader import MetadataReader
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.security.tls.checks import check_tls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rotunda.broker.config.broker_config import BrokerConfig
    from rotunda.broker.metadata.metadata_cache import MetadataCache


class Room(NamedTuple):
    """The numbers of processors and handlers for which this run of the broker has room.

    ``missing_bytes`` returns the shared memory missing for given numbers, because other programs may have used it up.
    """

    processors: int
    handlers: int
    missing_bytes: Callable[[int, int], int] = lambda _processors, _handlers: 0


def most_processors(started: int) -> int:
    """Return the largest number of processors without a restart, for a broker started with `started` of them."""
    return max(8, 4 * started)


def most_handlers(started: int) -> int:
    """Return the largest number of handlers without a restart, for a broker started with `started` of them."""
    return max(4, 2 * started)


def configured_at_start(config: BrokerConfig) -> BrokerConfig:
    """Return the configuration with the dynamic settings of an earlier run of the broker."""
    reader = MetadataReader(metadata_path(config.data_dir))
    stored = reader.read(0, with_topics=False)
    reader.close()
    if stored is None:
        return config
    settings = BrokerSettings(config, SetAside())
    settings.apply(stored.broker_configs)
    return settings.in_force


def check_change(
    metadata: MetadataCache,
    overrides: Mapping[str, Mapping[str, str]],
    room: Room,
    loaded: BrokerConfig | None = None,
    *,
    reads_certificates: bool = False,
) -> None:
    """Raise ApiError if dynamic settings, by broker, over the loaded or new configuration, are invalid together.

    Checks the numbers of processes, and listeners and their certificates; with ``reads_certificates`` also the
    certificates of unchanged settings.
    """
    before = metadata.broker_config
    after, conflicts = settings_in_force(loaded or metadata.loaded_config, overrides)
    for broker, reasons in conflicts.items():
        for name, reason in reasons.items():
            if name not in metadata.set_aside.of(BROKER, broker):
                raise ApiError(ErrorCode.INVALID_REQUEST, reason)
    try:
        check_tls(after, None if reads_certificates else before)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None
    check_listeners(before, after)
    processors, handlers = after.num_network_threads, after.num_io_threads
    grown = processors > before.num_network_threads or handlers > before.num_io_threads
    has_room = processors <= room.processors and handlers <= room.handlers
    missing_bytes = room.missing_bytes(processors, handlers) if grown and has_room else 0
    _check("num.network.threads", before.num_network_threads, processors, room.processors, missing_bytes)
    _check("num.io.threads", before.num_io_threads, handlers, room.handlers, missing_bytes)


def _check(name: str, old: int, new: int, most: int, missing_bytes: int) -> None:
    complaint = ""
    if new < old // 2:
        complaint = f", value should be at least half the current value {old}"
    elif new > old * 2:
        complaint = f", value should not be greater than double the current value {old}"
    elif new > max(most, old):
        complaint = f": at most {most} without a restart"
    elif new > old and missing_bytes > 0:
        complaint = f": /dev/shm lacks {missing_bytes} bytes; free some, or enlarge it"
    if complaint:
        failed = f"Dynamic thread count update validation failed for {name}={new}"
        raise ApiError(ErrorCode.INVALID_REQUEST, failed + complaint)
