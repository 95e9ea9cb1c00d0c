"""The preparation of the metadata file for the processes that read it. Runs in the supervisor, before it forks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rotunda.broker.errors import ApiError, BootFailed
from rotunda.broker.metadata.store.metadata_file import UNTIL_RESTART, metadata_path
from rotunda.broker.metadata.store.metadata_store import MetadataStore, nothing_to_do


def prepare(
    data_dir: Path,
    max_partitions: int,
    *,
    ephemeral: bool = False,
    before_change: Callable[[], None] = nothing_to_do,
) -> None:
    """Prepare the file before the processes that read it start, and check the number of its partitions.

    Raises BootFailed when the file cannot be used or holds more partitions than ``max.partitions``.
    """
    before_change()
    store = MetadataStore.open(metadata_path(data_dir), ephemeral=ephemeral, before_change=before_change)
    try:
        assigned = store.assigned_rows()
        if len(assigned) > max_partitions:
            raise BootFailed(f"the data directory holds {len(assigned)} partitions: set max.partitions to that or more")
        if assigned and assigned[-1][0] >= max_partitions:
            store.renumber_rows()
        store.forget_outcomes()
        for name in UNTIL_RESTART:
            store.forget_broker_configs(name)
    except ApiError as error:
        raise BootFailed(f"cannot prepare the metadata file: {error.message}") from error
    finally:
        store.close()
