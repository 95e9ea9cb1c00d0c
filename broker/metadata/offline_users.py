"""Users of a broker that does not run: the first one of a broker that lets nobody in without a password.

Run by commands. The caller has the data directory's lock, so that no controller writes the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from broker.metadata.entity_store import EntityKind
from broker.metadata.metadata_file import metadata_path
from broker.metadata.reader import MetadataReader
from broker.metadata.scram_users import MECHANISMS, Upsertion, changed_users
from broker.metadata.store import MetadataStore
from broker.security.sasl.scram_credential import new_salt, salted


def store_user(data_dir: Path, user: str, password: str, mechanisms: Iterable[str], iterations: int) -> None:
    """Give a user a password. Raises ApiError if it may not have it, BootFailed if the file cannot be used."""
    changes = []
    for mechanism in mechanisms:
        salt = new_salt()
        proof = salted(mechanism, password, salt, iterations)
        changes.append(Upsertion(user, MECHANISMS[mechanism], iterations, salt, proof))
    path = metadata_path(data_dir)
    store = MetadataStore.open(path)
    try:
        with closing(MetadataReader(path)) as reader:
            delta = reader.read(0, with_topics=False)
        stored = {} if delta is None else delta.entities.get(EntityKind.USER_CREDENTIAL, {})
        texts = {name: {key: str(value) for key, value in values.items()} for name, values in stored.items()}
        changed = changed_users(texts, user, changes)
        with store.transaction() as transaction:
            for name, values in changed.items():
                transaction.set_entity(EntityKind.USER_CREDENTIAL, name, values)
    finally:
        store.close()
