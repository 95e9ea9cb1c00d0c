"""Users of a stopped broker: creates the first user of a broker that requires passwords.

Run by commands, and by the supervisor before it forks. The caller holds the data directory's lock, so that no
controller writes the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from rotunda.broker.metadata.configs.stored_values import SetAside, check_readable
from rotunda.broker.metadata.security.scram_users import MECHANISMS, Upsertion, changed_users
from rotunda.broker.metadata.store.entity_store import EntityKind
from rotunda.broker.metadata.store.metadata_file import metadata_path
from rotunda.broker.metadata.store.metadata_reader import MetadataReader
from rotunda.broker.metadata.store.metadata_store import MetadataStore
from rotunda.broker.security.sasl.scram_credential import new_salt, salted


def stored_users(data_dir: Path) -> dict[str, dict[str, str]]:
    """Return by user and mechanism the credentials as stored; a reserved name has the salts' secret."""
    with closing(MetadataReader(metadata_path(data_dir))) as reader:
        delta = reader.read(0, with_topics=False)
    kind = EntityKind.USER_CREDENTIAL
    stored = {} if delta is None else SetAside().readable_entities(kind, delta.entities.get(kind, {}))
    return {name: {key: str(value) for key, value in values.items()} for name, values in stored.items()}


def store_user(data_dir: Path, user: str, password: str, mechanisms: Iterable[str], iterations: int) -> None:
    """Store a user's password. Raises ApiError if it is invalid, BootFailed if the file cannot be used."""
    changes = []
    for mechanism in mechanisms:
        salt = new_salt()
        proof = salted(mechanism, password, salt, iterations)
        changes.append(Upsertion(user, MECHANISMS[mechanism], iterations, salt, proof))
    store = MetadataStore.open(metadata_path(data_dir), check=check_readable)
    try:
        changed = changed_users(stored_users(data_dir), user, changes)
        with store.transaction() as transaction:
            for name, values in changed.items():
                transaction.set_entity(EntityKind.USER_CREDENTIAL, name, values)
    finally:
        store.close()
