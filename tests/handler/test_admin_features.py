"""UpdateFeatures and the features of ApiVersions: valid levels, authorization, visibility."""

from __future__ import annotations

from typing import Any

import pytest

from rotunda.broker.apis.cluster.api_versions import handle_api_versions
from rotunda.broker.protocol.api_keys import ApiKey
from tests.support.admin_cluster import AdminCluster

UPGRADE, SAFE, UNSAFE = 1, 2, 3
DEFAULTS = {
    "eligible.leader.replicas.version": 0,
    "group.version": 1,
    "kraft.version": 0,
    "metadata.version": 33,
    "share.version": 2,
    "streams.version": 0,
    "transaction.version": 2,
}


def update(cluster: AdminCluster, *updates: tuple[str, int, int], version: int = 2, validate_only: bool = False) -> Any:
    changes = [
        {"feature": name, "max_version_level": level, "upgrade_type": kind, "allow_downgrade": kind != UPGRADE}
        for name, level, kind in updates
    ]
    fields = {"feature_updates": changes, "validate_only": validate_only}
    return cluster.call(ApiKey.UPDATE_FEATURES, version, fields)


@pytest.mark.parametrize("version", range(3))
def test_a_feature_is_downgraded_and_upgraded_in_every_process(cluster: AdminCluster, version: int) -> None:
    assert cluster.metadata.finalized_features == DEFAULTS
    response = update(cluster, ("transaction.version", 0, SAFE), ("group.version", 1, UPGRADE), version=version)
    assert (response.error_code, response.error_message) == (0, None)
    if version < 2:
        assert [(each.feature, each.error_code) for each in response.results] == [
            ("transaction.version", 0),
            ("group.version", 0),
        ]
    cluster.settle()
    assert [cache.finalized_features["transaction.version"] for cache in cluster.handlers] == [0, 0, 0]
    cluster.restart_controller()
    assert cluster.metadata.finalized_features == {**DEFAULTS, "transaction.version": 0}
    assert update(cluster, ("transaction.version", 1, UPGRADE), version=version).error_code == 0
    assert cluster.metadata.finalized_features["transaction.version"] == 1


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(
    ("name", "level", "kind", "says"),
    [
        ("no.such.feature", 1, UPGRADE, "does not support this feature; it supports eligible"),
        ("transaction.version", 3, UPGRADE, "only supports versions 0-2"),
        ("transaction.version", -1, SAFE, "cannot be less than 0"),
        ("transaction.version", 1, UPGRADE, "Can't downgrade the version of this feature, which is 2"),
        ("metadata.version", 34, UPGRADE, "only supports versions 7-33"),
        ("metadata.version", 6, UNSAFE, "only supports versions 7-33"),
        ("metadata.version", 32, UPGRADE, "Can't downgrade the version of this feature, which is 33"),
        ("share.version", 3, UPGRADE, "only supports versions 0-2"),
        ("kraft.version", 2, UPGRADE, "only supports versions 0-1"),
        ("no.such.feature", 0, SAFE, "does not support this feature"),
    ],
)
def test_an_update_that_kafka_rejects_is_rejected_and_changes_nothing(
    cluster: AdminCluster, version: int, name: str, level: int, kind: int, says: str
) -> None:
    """Spec I, row 57: an unknown feature is error 95."""
    response = update(cluster, ("group.version", 0, SAFE), (name, level, kind), version=version)
    assert response.error_code == 95
    assert response.error_message.startswith("The update failed for all features since the following feature had an")
    assert f"Invalid update version {level} for feature {name}. " in response.error_message
    assert says in response.error_message
    assert cluster.metadata.finalized_features == DEFAULTS


@pytest.mark.parametrize(
    ("level", "kind", "says"),
    [(1, 9, "does not support the given upgrade type 9"), (2, 0, "upgrade type 0")],
)
def test_unknown_upgrade_types_are_rejected(cluster: AdminCluster, level: int, kind: int, says: str) -> None:
    response = update(cluster, ("transaction.version", level, kind))
    assert (response.error_code, says in response.error_message) == (95, True)


def test_a_downgrade_to_a_newer_version_is_rejected(cluster: AdminCluster) -> None:
    update(cluster, ("transaction.version", 0, UNSAFE))
    response = update(cluster, ("transaction.version", 2, SAFE))
    assert (response.error_code, "to a newer version" in response.error_message) == (95, True)


def test_v14_the_levels_of_a_release_are_accepted_together(cluster: AdminCluster) -> None:
    """kafka-features upgrade --release-version 4.4; levels without effect are stored."""
    release = {
        **DEFAULTS,
        "eligible.leader.replicas.version": 1,
        "kraft.version": 1,
        "streams.version": 1,
    }
    assert update(cluster, *[(name, level, UPGRADE) for name, level in release.items()]).error_code == 0
    cluster.restart_controller()
    assert cluster.metadata.finalized_features == release


def test_only_checking_changes_nothing(cluster: AdminCluster) -> None:
    assert update(cluster, ("transaction.version", 0, SAFE), validate_only=True).error_code == 0
    assert update(cluster, ("transaction.version", 2, SAFE)).error_code == 0
    assert (cluster.metadata.finalized_features, cluster.controller.version) == (DEFAULTS, 0)


def test_c10_api_versions_has_the_features(cluster: AdminCluster) -> None:
    """KIP-584: supported features, finalized features, and their epoch."""
    update(cluster, ("transaction.version", 1, SAFE))
    cluster.settle()
    response = api_versions(cluster, 4)
    assert {each.name: (each.min_version, each.max_version) for each in response.supported_features} == {
        "eligible.leader.replicas.version": (0, 1),
        "group.version": (0, 1),
        "kraft.version": (0, 1),
        "metadata.version": (7, 33),
        "share.version": (0, 2),
        "streams.version": (0, 1),
        "transaction.version": (0, 2),
    }
    assert response.finalized_features_epoch == 1
    assert {each.name: (each.max_version_level, each.min_version_level) for each in response.finalized_features} == {
        "group.version": (1, 1),
        "metadata.version": (33, 33),
        "share.version": (2, 2),
        "transaction.version": (1, 1),
    }


def test_c10_older_clients_see_no_feature_minimum_of_zero_and_nobody_a_level_of_zero(cluster: AdminCluster) -> None:
    """S06, V13: the features of Kafka 4.4."""
    update(cluster, ("transaction.version", 0, SAFE))
    cluster.settle()
    for version, least in ((3, 1), (4, 0)):
        response = api_versions(cluster, version)
        assert {each.name: each.min_version for each in response.supported_features} == {
            "eligible.leader.replicas.version": least,
            "group.version": least,
            "kraft.version": least,
            "metadata.version": 7,
            "share.version": least,
            "streams.version": least,
            "transaction.version": least,
        }
        assert {each.name for each in response.finalized_features} == {
            "group.version",
            "metadata.version",
            "share.version",
        }


def api_versions(cluster: AdminCluster, version: int) -> Any:
    """Return a handler's response as decoded by a client."""
    asked = cluster.asked(ApiKey.API_VERSIONS, version, cache=cluster.handlers[1])
    fields = {"client_software_name": "test", "client_software_version": "1"}
    response = handle_api_versions(*asked, cluster.request(ApiKey.API_VERSIONS, version, fields))
    return cluster.sent(ApiKey.API_VERSIONS, version, response)


def test_of_two_updates_of_one_feature_the_last_counts(cluster: AdminCluster) -> None:
    response = update(cluster, ("transaction.version", 0, SAFE), ("transaction.version", 1, SAFE))
    assert response.error_code == 0
    assert cluster.metadata.finalized_features["transaction.version"] == 1


@pytest.mark.parametrize(
    ("kind", "says"), [(SAFE, "it might delete metadata information"), (UNSAFE, "is not supported")]
)
def test_the_metadata_version_cannot_be_downgraded(cluster: AdminCluster, kind: int, says: str) -> None:
    """V13, KIP-778: a downgrade that could lose metadata is rejected, and from 4.3-IV0 on every downgrade could."""
    response = update(cluster, ("metadata.version", 32, kind))
    assert response.error_code == 95
    assert "Unsupported metadata.version downgrade from 33 to 32. " in response.error_message
    assert says in response.error_message
    assert update(cluster, ("metadata.version", 33, UPGRADE), ("metadata.version", 33, kind)).error_code == 0
    assert (cluster.metadata.finalized_features, cluster.controller.version) == (DEFAULTS, 0)


def test_features_without_an_implementation_can_be_switched_off(cluster: AdminCluster) -> None:
    """A downgrade to an older release requests this; they are neither supported nor finalized, and nothing changes."""
    off = [(name, 0, SAFE) for name in ("kraft.version", "streams.version")]
    assert update(cluster, *off, ("eligible.leader.replicas.version", 0, UNSAFE)).error_code == 0
    assert (cluster.metadata.finalized_features, cluster.controller.version) == (DEFAULTS, 0)
