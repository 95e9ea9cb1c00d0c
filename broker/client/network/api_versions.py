"""API versions of the client and of each broker, and the choice of the version to use (`G28`, `G34`).

Runs on the I/O thread; other threads also read `finalized_features`. Kafka's NodeApiVersions and ApiVersions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from rotunda.broker.client.errors import UnsupportedVersion
from rotunda.broker.client.network.requests import Buffer, Build, codec_request
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.codec import decode_body
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.release import installed_version

if TYPE_CHECKING:
    from collections.abc import Sequence

SOFTWARE_NAME: Final = "rotunda-python"

#: Lowest and highest version that this client supports, for requests without their own `versions`: callers with an
#: encoder of their own pass those.
CLIENT_VERSIONS: Final[Mapping[int, tuple[int, int]]] = MappingProxyType(
    {
        ApiKey.METADATA: (1, 13),
        ApiKey.FIND_COORDINATOR: (0, 6),
        ApiKey.SASL_HANDSHAKE: (1, 1),
        ApiKey.API_VERSIONS: (0, 4),
        ApiKey.INIT_PRODUCER_ID: (0, 6),
        ApiKey.ADD_PARTITIONS_TO_TXN: (0, 3),
        ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
        ApiKey.END_TXN: (0, 5),
        ApiKey.TXN_OFFSET_COMMIT: (0, 5),
        ApiKey.SASL_AUTHENTICATE: (0, 2),
    }
)


@dataclass(frozen=True, slots=True)
class NodeApiVersions:
    """One broker's ApiVersions response."""

    #: Lowest and highest supported version, by API.
    ranges: Mapping[int, tuple[int, int]]
    #: Level of each finalized feature, and the epoch, -1 if absent (KIP-584).
    finalized_features: Mapping[str, int] = field(default_factory=dict)
    finalized_features_epoch: int = -1

    def latest_usable_version(self, api_key: int, oldest: int, latest: int) -> int:
        """Return the highest version that both sides support. Raises UnsupportedVersion."""
        served = self.ranges.get(api_key)
        if served is None:
            raise UnsupportedVersion(f"The node does not support {_name_of(api_key)}")
        usable = min(latest, served[1])
        if usable < max(oldest, served[0]):
            raise UnsupportedVersion(
                f"The node does not support {_name_of(api_key)} with version in range [{oldest},{latest}]. "
                f"The supported range is [{served[0]},{served[1]}]."
            )
        return usable


class ApiVersions:
    """The API versions of all connected brokers."""

    def __init__(self) -> None:
        self._nodes: dict[int, NodeApiVersions] = {}
        self._features: tuple[int, Mapping[str, int]] = (-1, {})

    def update(self, node_id: int, versions: NodeApiVersions) -> None:
        """Store a broker's API versions."""
        self._nodes[node_id] = versions
        if versions.finalized_features_epoch > self._features[0]:
            self._features = versions.finalized_features_epoch, versions.finalized_features

    def remove(self, node_id: int) -> None:
        """Delete a broker's versions: it may have been upgraded when it reconnects."""
        self._nodes.pop(node_id, None)

    def get(self, node_id: int) -> NodeApiVersions | None:
        """Return a broker's API versions; None before its first response."""
        return self._nodes.get(node_id)

    @property
    def finalized_features(self) -> tuple[int, Mapping[str, int]]:
        """The newest epoch of finalized features from any broker, and their levels by name."""
        return self._features


def api_versions_request() -> Build:
    """Return an ApiVersions request with this client's software name and version (KIP-511)."""
    fields = {"client_software_name": SOFTWARE_NAME, "client_software_version": _software_version()}
    return codec_request(ApiKey.API_VERSIONS, fields)


def decode_api_versions(sent_version: int, buffer: Buffer, offset: int, end: int) -> Any:
    """Decode the response into a compiled message. Raises InvalidReceive.

    A broker that does not support the requested version sends error 35 in a version 0 response (KIP-511).
    """
    refused = int.from_bytes(bytes(buffer[offset : offset + 2]), "big") == ErrorCode.UNSUPPORTED_VERSION
    return decode_body(ApiKey.API_VERSIONS, 0 if refused else sent_version, buffer, offset, end)


def node_api_versions(answer: Any) -> NodeApiVersions:
    """Convert an ApiVersions response."""
    features: Sequence[Any] = answer.finalized_features
    return NodeApiVersions(
        ranges={int(each.api_key): (int(each.min_version), int(each.max_version)) for each in answer.api_keys},
        finalized_features={each.name: int(each.max_version_level) for each in features},
        finalized_features_epoch=int(answer.finalized_features_epoch),
    )


def version_to_try_next(answer: Any) -> int:
    """Return the ApiVersions version to retry with after error 35: the broker's highest, or 0 if it lists none."""
    served = (int(each.max_version) for each in answer.api_keys if int(each.api_key) == ApiKey.API_VERSIONS)
    return min(next(served, 0), CLIENT_VERSIONS[ApiKey.API_VERSIONS][1])


def _name_of(api_key: int) -> str:
    return ApiKey(api_key).name if api_key in ApiKey.__members__.values() else f"API {api_key}"


@cache
def _software_version() -> str:
    return installed_version() or "unknown"
