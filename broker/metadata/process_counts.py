"""How many processors there may be: Kafka's rule for a change while the broker runs (`A28`), and the number at a start.

The rule runs in the controller before it stores a change, whoever asks for it; the number is asked for by the
supervisor before it makes anything. Pure but for reading the metadata file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.errors import ApiError
from broker.metadata.broker_settings import settings_in_force
from broker.metadata.metadata_file import metadata_path
from broker.metadata.reader import MetadataReader
from broker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.config.broker_config import BrokerConfig
    from broker.metadata.metadata_cache import MetadataCache


def most_processors(started: int) -> int:
    """Return how many processors a broker that starts with so many can have without a restart."""
    return max(8, 4 * started)


def configured_at_start(config: BrokerConfig) -> BrokerConfig:
    """Return the configuration with what was set while an earlier run of the broker lasted."""
    reader = MetadataReader(metadata_path(config.data_dir))
    stored = reader.read(0, with_topics=False)
    reader.close()
    return config if stored is None else settings_in_force(config, stored.broker_configs)


def check_change(
    metadata: MetadataCache,
    overrides: Mapping[str, Mapping[str, str]],
    most: int,
    loaded: BrokerConfig | None = None,
) -> None:
    """Raise ApiError if settings, by broker, over what was loaded, or is to be, have more or fewer than may be."""
    old = metadata.broker_config.num_network_threads
    new = settings_in_force(loaded or metadata.loaded_config, overrides).num_network_threads
    complaint = ""
    if new < old // 2:
        complaint = f", value should be at least half the current value {old}"
    elif new > old * 2:
        complaint = f", value should not be greater than double the current value {old}"
    elif new > max(most, old):
        complaint = f": this run of the broker has room for {most}; more take a restart with the number in its file"
    if complaint:
        failed = f"Dynamic thread count update validation failed for num.network.threads={new}"
        raise ApiError(ErrorCode.INVALID_REQUEST, failed + complaint)
