"""Serializers of keys and values: functions, or names of built-in ones. Called by the application's threads.

The bytes are those of Kafka's serializers of the same names, so that Java consumers can read them.
"""

from __future__ import annotations

import importlib
import json
import struct
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from rotunda.broker.client.errors import SerializationFailed
from rotunda.broker.errors import ConfigError
from rotunda.broker.records.record_writer import Headers
from rotunda.broker.text_table import did_you_mean

#: (topic, key or value, headers) -> bytes; None stays null.
Serializer: TypeAlias = Callable[[str, Any, Headers], bytes | None]

_JAVA_PACKAGE: Final = "org.apache.kafka.common.serialization."
_JAVA_SUFFIX: Final = "Serializer"
_JAVA_NAMES: Final = {"bytearray": "bytes", "bytebuffer": "bytes"}


def serialize_bytes(_topic: str, data: Any, _headers: Headers) -> bytes | None:
    """Return bytes unchanged."""
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    raise SerializationFailed(
        f"{data!r:.60} is of type {type(data).__name__}, and bytes are needed: encode it, or set key.serializer or "
        "value.serializer, for instance to string or json"
    )


def _string(_topic: str, data: Any, _headers: Headers) -> bytes | None:
    if data is None:
        return None
    if not isinstance(data, str):
        raise SerializationFailed(f"{data!r:.60} is of type {type(data).__name__}, and the serializer is for str")
    return data.encode()


def _json(_topic: str, data: Any, _headers: Headers) -> bytes | None:
    return None if data is None else json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()


def _packed(form: str) -> Serializer:
    pack = struct.Struct(form).pack

    def serialize(_topic: str, data: Any, _headers: Headers) -> bytes | None:
        return None if data is None else pack(data)

    return serialize


_BY_NAME: Final[dict[str, Serializer]] = {
    "bytes": serialize_bytes,
    "string": _string,
    "json": _json,
    "short": _packed(">h"),
    "integer": _packed(">i"),
    "long": _packed(">q"),
    "float": _packed(">f"),
    "double": _packed(">d"),
}


def serializer_of(setting: str, value: object) -> Serializer:
    """Return the serializer named by a setting. Raises ConfigError."""
    if value is None:
        return serialize_bytes
    if not isinstance(value, str):
        method = getattr(value, "serialize", value)
        if callable(method):
            found: Serializer = method
            return found
        raise ConfigError(f"{setting}={value!r} is no function, and has no method serialize(topic, data, headers)")
    name = value.removeprefix(_JAVA_PACKAGE).removesuffix(_JAVA_SUFFIX).lower()
    name = _JAVA_NAMES.get(name, name)
    if name in _BY_NAME:
        return _BY_NAME[name]
    if ":" in value:
        return serializer_of(setting, load(setting, value))
    hint = did_you_mean(value, _BY_NAME)
    raise ConfigError(f"{setting}={value} is not known{hint}: name one of {', '.join(_BY_NAME)}, or give a function")


def load(setting: str, path: str) -> Any:
    """Import the object at `module:name`. Raises ConfigError."""
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as failure:
        raise ConfigError(f"{setting}={path} cannot be loaded: {failure}") from failure


def serialized(serializer: Serializer, what: str, topic: str, data: Any, headers: Headers) -> bytes | None:
    """Serialize a key or a value. Raises SerializationFailed (G03)."""
    try:
        found = serializer(topic, data, headers)
    except SerializationFailed:
        raise
    except Exception as failure:
        raise SerializationFailed(f"the {what} of a record for {topic} cannot be serialized: {failure!r}") from failure
    if found is not None and not isinstance(found, (bytes, bytearray, memoryview)):
        raise SerializationFailed(f"the serializer of the {what} has returned {type(found).__name__} and not bytes")
    return found if found is None or type(found) is bytes else bytes(found)
