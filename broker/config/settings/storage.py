"""The broker settings of the disk of the data directory: the minimum free space, and the effect below it.

Declarations only. `broker_config` joins them with the others into the one BrokerConfig. Kafka has no such settings:
there a full disk ends the broker.
"""

from __future__ import annotations

from dataclasses import dataclass

from rotunda.broker.config.keys import Kind, setting


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class StorageSettings:
    """The minimum free disk space. A part of BrokerConfig."""

    storage_free_warn_bytes: int = setting(
        Kind.LONG,
        1024 * 1024 * 1024,
        least=0,
        dynamic=True,
        doc="Free space on the disk of the data directory below which a warning is logged and shown on the status "
        "page and by /readyz. 0: never.",
    )
    storage_free_warn_ratio: float = setting(
        Kind.DOUBLE,
        0.05,
        least=0,
        most=1,
        dynamic=True,
        doc="storage.free.warn.bytes as a share of the disk; the smaller of the two counts.",
    )
    storage_free_min_bytes: int = setting(
        Kind.LONG,
        64 * 1024 * 1024,
        least=0,
        dynamic=True,
        doc="Free space below which records are rejected (KAFKA_STORAGE_ERROR). Fetch, DeleteRecords, offset "
        "commits and administration continue. The request log stops at twice this value. 0: records are "
        "rejected only when a write fails.",
    )
    storage_free_min_ratio: float = setting(
        Kind.DOUBLE,
        0.005,
        least=0,
        most=1,
        dynamic=True,
        doc="storage.free.min.bytes as a share of the disk; the smaller of the two counts.",
    )
    metadata_rebuild: bool = setting(
        Kind.BOOLEAN,
        False,
        doc="Rebuild a lost or damaged metadata file from the partition directories, as for a data directory "
        "written by Kafka. Topics keep names, ids and records, and nothing in them expires until they are "
        "reconfigured; settings, quotas and features are lost. Without it the broker does not start.",
    )
