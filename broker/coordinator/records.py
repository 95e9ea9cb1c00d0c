"""The records of `__consumer_offsets` and `__transaction_state`, by Kafka's message definitions.

Pure. A record type has two messages, such as GroupMetadataKey and GroupMetadataValue: a key starts with the number of
its type, a value with its version. Each kind of group, the offsets and the transactions have a table: by type, the
function that applies a record to memory when a partition is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

from rotunda.broker.errors import InvalidReceive
from rotunda.broker.protocol.codec import reader, writer
from rotunda.broker.protocol.primitives import INT16
from rotunda.broker.protocol.schema.definitions import Structure, definition
from rotunda.broker.steps import Steps

Record: TypeAlias = tuple[bytes, bytes | None]
"""Key and value; a record without a value deletes the key when the topic is compacted."""

_NO_LIMIT = 1 << 62


class RecordType:
    """A record type by Kafka's names of its key and value, which usually are the same.

    `own_fields`: tagged fields of its value that only this broker writes.
    """

    def __init__(self, name: str, value_name: str = "", own_fields: str = "") -> None:
        self._key, self._value = f"{name}Key", f"{value_name or name}Value"
        self._own_fields = own_fields
        self.number = definition(self._key).api_key
        self._number_bytes = INT16.pack(self.number)

    def key(self, **fields: Any) -> bytes:
        return self._number_bytes + writer(self._key, 0)(fields)

    def value(self, version: int, fields: Mapping[str, Any]) -> bytes:
        return INT16.pack(version) + writer(self._value, version, self._own_fields)(fields)

    def element_class(self, field: str) -> Callable[..., Structure]:
        """Return the class of the elements of an array in the value: faster to encode than mappings."""
        fields = definition(self._value, self._own_fields).structure.fields
        return next(each.structure.value_class for each in fields if each.name == field and each.structure)

    def read_key(self, data: bytes) -> Any:
        """Return a key as a message. Raises InvalidReceive."""
        return reader(self._key, 0)(data, INT16.size, len(data), _NO_LIMIT)

    def read_value(self, data: bytes) -> Any:
        """Return a value as a message. Raises InvalidReceive, also for a version that Kafka does not have."""
        if len(data) < INT16.size:
            raise InvalidReceive(f"{self._value} of {len(data)} bytes")
        read = reader(self._value, INT16.unpack_from(data)[0], self._own_fields)
        return read(data, INT16.size, len(data), _NO_LIMIT)


Shard = TypeVar("Shard")

Apply: TypeAlias = Callable[[Shard, Any, Any, int], Steps[None] | None]
"""(shard, key, value or None if deleted, producer id in a transaction or -1) -> None, or the steps of a long record."""


class RecordTable(Generic[Shard]):
    """The record types of a coordinator, each with the function that applies it."""

    def __init__(self, *tables: Mapping[RecordType, Apply[Shard]]) -> None:
        self._by_number = {each.number: (each, apply) for table in tables for each, apply in table.items()}

    def apply(self, shard: Shard, key: bytes, value: bytes | None, producer_id: int) -> Steps[None] | None:
        """Apply a record; ignore one of an unknown type. Raises InvalidReceive or ValueError for a malformed one."""
        found = self._by_number.get(INT16.unpack_from(key)[0]) if len(key) >= INT16.size else None
        if found is None:
            return None
        record_type, apply = found
        read = None if value is None else record_type.read_value(value)
        return apply(shard, record_type.read_key(key), read, producer_id)
