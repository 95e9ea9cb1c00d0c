"""The cluster features with a level that admins may choose: supported levels and allowed changes.

A feature's finalized level is the one that every process uses (KIP-584): `transaction.version` 2 is the transaction
protocol of KIP-890, `group.version` 1 the consumer group protocol of KIP-848, `share.version` 1 the share groups of
KIP-932. `metadata.version` shows clients the Kafka release of the APIs (KIP-778); from `ADDRESS_RANGES_FROM` on ACLs
may have ranges of addresses. Pure; the controller validates with it, and every process decodes the stored levels with
it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.error_codes import ErrorCode

#: The key of the level in a feature's entity.
LEVEL = "level"

#: By name of the feature: its stored values.
Levels: TypeAlias = Mapping[str, Mapping[str, str | int | float]]

METADATA_VERSION = "metadata.version"
TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
SHARE_VERSION = "share.version"

#: The first metadata.version with ranges of addresses as hosts of ACLs (KIP-1276): 4.4-IV1.
ADDRESS_RANGES_FROM = 32


class Feature(NamedTuple):
    """One feature: the supported levels, and the default of a data directory without a stored level."""

    name: str
    least: int
    greatest: int
    default: int


SUPPORTED_FEATURES: Mapping[str, Feature] = MappingProxyType(
    {
        feature.name: feature
        for feature in (
            Feature(GROUP_VERSION, least=0, greatest=1, default=1),
            # 3.3-IV3, the least that Kafka 4 can work at, to 4.4-IV2.
            Feature(METADATA_VERSION, least=7, greatest=33, default=30),
            # 2 adds dead letters (KIP-1191).
            Feature(SHARE_VERSION, least=0, greatest=2, default=0),
            Feature(TRANSACTION_VERSION, least=0, greatest=2, default=2),
            # Levels without effect: a partition has one replica, the metadata one writer, and streams groups are off.
            Feature("eligible.leader.replicas.version", least=0, greatest=1, default=0),
            Feature("kraft.version", least=0, greatest=1, default=0),
            Feature("streams.version", least=0, greatest=1, default=0),
        )
    }
)

#: The levels that a new data directory stores. One of an earlier version has the defaults until they are raised.
INITIAL_LEVELS: Levels = MappingProxyType({METADATA_VERSION: {LEVEL: 33}, SHARE_VERSION: {LEVEL: 2}})


class UpgradeType(enum.IntEnum):
    """The allowed direction of an update, numbered as in UpdateFeatures."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


#: Kafka's reasons why metadata.version cannot be lowered: its level 30 has changed the content of the metadata.
_NO_WAY_BACK: Mapping[int, str] = MappingProxyType(
    {
        UpgradeType.SAFE_DOWNGRADE: "Refusing to perform the requested downgrade because it might delete metadata "
        "information.",
        UpgradeType.UNSAFE_DOWNGRADE: "Unsafe metadata downgrade is not supported in this version.",
    }
)


class FeatureUpdate(NamedTuple):
    """A requested level. ``upgrade_type`` is the number of an `UpgradeType`, or an unknown number."""

    name: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE


def finalized_levels(stored: Levels) -> Mapping[str, int]:
    """Return every feature's level: the stored one, else its default. Features of other versions are omitted."""
    return MappingProxyType(
        {
            feature.name: min(int(stored.get(feature.name, {}).get(LEVEL, feature.default)), feature.greatest)
            for feature in SUPPORTED_FEATURES.values()
        }
    )


def check_updates(updates: Sequence[FeatureUpdate], current: Mapping[str, int]) -> None:
    """Raise ApiError INVALID_UPDATE_VERSION, with the name of the feature, unless every update is allowed."""
    for update in updates:
        level = current.get(update.name, 0)
        complaint = _unsupported(update) or _wrong_direction(update, level)
        if complaint is not None:
            raise _rejected(f"Invalid update version {update.level} for feature {update.name}. {complaint}")
        if update.name == METADATA_VERSION and update.level < level:
            why = _NO_WAY_BACK[update.upgrade_type]
            raise _rejected(f"Unsupported metadata.version downgrade from {level} to {update.level}. {why}")


def _rejected(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_UPDATE_VERSION, message)


def _unsupported(update: FeatureUpdate) -> str | None:
    if update.upgrade_type not in list(UpgradeType):
        return (
            f"The controller does not support the given upgrade type {update.upgrade_type}; "
            "1 is upgrade, 2 safe downgrade, 3 unsafe downgrade."
        )
    if update.level < 0:
        return "A feature version cannot be less than 0."
    feature = SUPPORTED_FEATURES.get(update.name)
    if feature is None:
        return f"This broker does not support this feature; it supports {', '.join(sorted(SUPPORTED_FEATURES))}."
    if not feature.least <= update.level <= feature.greatest:
        return f"This broker only supports versions {feature.least}-{feature.greatest}"
    return None


def _wrong_direction(update: FeatureUpdate, level: int) -> str | None:
    if update.level < level and update.upgrade_type == UpgradeType.UPGRADE:
        return (
            f"Can't downgrade the version of this feature, which is {level}, without setting the upgrade type to "
            "either safe or unsafe downgrade."
        )
    if update.level > level and update.upgrade_type != UpgradeType.UPGRADE:
        return f"Can't downgrade to a newer version: the version of this feature is {level}."
    return None
