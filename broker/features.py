"""The features of the cluster whose level an admin may choose: what levels there are, and which change is allowed.

A feature's finalized level says how far every process makes use of it (KIP-584): `transaction.version` 2 is KIP-890's
protocol of transactions, `group.version` 1 is KIP-848's of consumer groups. Pure; the controller validates with it, and
every process resolves what is stored with it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from broker.errors import ApiError
from broker.protocol.error_codes import ErrorCode
from broker.stored_entities import Entities

#: The key under which a feature's entity keeps its level.
LEVEL = "level"

TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"


class Feature(NamedTuple):
    """One feature: the levels that this broker can work at, and the one of a cluster that never chose."""

    name: str
    least: int
    greatest: int
    default: int


SUPPORTED_FEATURES: Mapping[str, Feature] = MappingProxyType(
    {
        feature.name: feature
        for feature in (
            Feature(GROUP_VERSION, least=0, greatest=1, default=1),
            Feature(TRANSACTION_VERSION, least=0, greatest=2, default=2),
        )
    }
)


class UpgradeType(enum.IntEnum):
    """What an update may do to the level, numbered as UpdateFeatures numbers it."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A wanted level. ``upgrade_type`` is the number of an `UpgradeType`, or one that there is not."""

    name: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE


def finalized_levels(stored: Entities) -> Mapping[str, int]:
    """Return every feature's level: the one stored, else its default. Features of other versions are left out."""
    return MappingProxyType(
        {
            feature.name: min(int(stored.get(feature.name, {}).get(LEVEL, feature.default)), feature.greatest)
            for feature in SUPPORTED_FEATURES.values()
        }
    )


def check_updates(updates: Sequence[FeatureUpdate], current: Mapping[str, int]) -> None:
    """Raise ApiError INVALID_UPDATE_VERSION, which names the feature, unless every update may be made."""
    for update in updates:
        complaint = _unsupported(update) or _wrong_direction(update, current[update.name])
        if complaint is not None:
            raise ApiError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Invalid update version {update.level} for feature {update.name}. {complaint}",
            )


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
