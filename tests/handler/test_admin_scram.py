"""SCRAM credentials by the admin APIs: accepted and rejected requests as in Kafka, and the stored users (row 50)."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from rotunda.broker.config.settings.sasl import SCRAM_SHA_256
from rotunda.broker.metadata.configs.live_settings import LiveSettings
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.security.sasl.scram_credential import credential_of
from tests.support.admin_cluster import AdminCluster

ALTER, DESCRIBE = ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS


def altered(
    cluster: AdminCluster, deletions: Any = (), upsertions: Any = (), salt: bytes = b"s", salted_password: bytes = b"p"
) -> dict[str, int]:
    """Return the error code of each user."""
    fields = {
        "deletions": [{"name": name, "mechanism": mechanism} for name, mechanism in deletions],
        "upsertions": [
            {
                "name": name,
                "mechanism": mechanism,
                "iterations": iterations,
                "salt": salt,
                "salted_password": salted_password,
            }
            for name, mechanism, iterations in upsertions
        ],
    }
    results = cluster.call(ALTER, 0, fields).results
    assert all(bool(each.error_message) == bool(int(each.error_code)) for each in results)
    return {each.user: int(each.error_code) for each in results}


def described(cluster: AdminCluster, *names: str) -> dict[str, Any]:
    """Return by user the mechanisms and iterations, or the error code."""
    users = [{"name": name} for name in names] if names else None
    answer = cluster.call(DESCRIBE, 0, {"users": users})
    assert int(answer.error_code) == 0
    return {
        each.user: int(each.error_code) or [(info.mechanism, info.iterations) for info in each.credential_infos]
        for each in answer.results
    }


def test_credentials_are_made_replaced_and_deleted(cluster: AdminCluster) -> None:
    assert described(cluster) == {}
    assert altered(cluster, upsertions=[("alice", 1, 4096), ("alice", 2, 8192), ("bob", 2, 16384)]) == {
        "alice": 0,
        "bob": 0,
    }
    assert described(cluster) == {"alice": [(1, 4096), (2, 8192)], "bob": [(2, 16384)]}
    assert altered(cluster, [("bob", 2)], [("alice", 1, 5000)]) == {"alice": 0, "bob": 0}
    assert described(cluster) == {"alice": [(1, 5000), (2, 8192)]}
    assert described(cluster, "bob", "alice", "alice") == {"bob": 91, "alice": 92}


@pytest.mark.parametrize(
    ("deletions", "upsertions", "error"),
    [
        ([("alice", 1)], [], ErrorCode.RESOURCE_NOT_FOUND),
        ([("alice", 9)], [], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([("", 1)], [], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([], [("", 1, 4096)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([], [("a" * 4097, 1, 4096)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([], [("alice", 1, 4095)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([], [("alice", 1, 16385)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([], [("alice", 0, 4096)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([("alice", 1)], [("alice", 1, 4096)], ErrorCode.DUPLICATE_RESOURCE),
        ([], [("alice", 1, 4096), ("alice", 2, 1)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_changes_that_kafka_rejects_have_no_effect(
    cluster: AdminCluster, deletions: Any, upsertions: Any, error: int
) -> None:
    """The other users of the request still get their credentials."""
    outcome = altered(cluster, deletions, [*upsertions, ("carol", 1, 4096)])
    assert outcome.pop("carol") == 0
    assert list(outcome.values()) == [error]
    assert described(cluster) == {"carol": [(1, 4096)]}


def test_they_are_there_after_a_restart_and_in_every_process(cluster: AdminCluster) -> None:
    altered(cluster, upsertions=[("alice", 1, 4096)])
    seconds = itertools.count(0, 1_000_000_000)
    live = LiveSettings(cluster.path, cluster.config, lambda: cluster.controller.version, lambda: next(seconds))
    assert live.user_credentials.find(SCRAM_SHA_256, "alice") == credential_of(SCRAM_SHA_256, b"p", b"s", 4096)
    secret = live.user_credentials.secret
    assert len(secret) == 64
    assert cluster.new_cache().user_credentials.keys() == set()
    restarted = cluster.new_cache()
    restarted.refresh()
    assert restarted.user_credentials.keys() == {"", "alice"}
    altered(cluster, [("alice", 1)])
    live.refresh()
    assert live.user_credentials.find(SCRAM_SHA_256, "alice") is None
    assert live.user_credentials.secret == secret
    live.close()


def test_an_empty_salt_is_stored_and_read_again(cluster: AdminCluster) -> None:
    """Kafka stores it too, and rejects an empty salted password with UNKNOWN_SERVER_ERROR."""
    assert altered(cluster, upsertions=[("alice", 1, 4096)], salt=b"", salted_password=bytes(32)) == {"alice": 0}
    assert described(cluster) == {"alice": [(1, 4096)]}
    live = LiveSettings(cluster.path, cluster.config, lambda: cluster.controller.version, lambda: 0)
    found = live.user_credentials.find(SCRAM_SHA_256, "alice")
    assert found == credential_of(SCRAM_SHA_256, bytes(32), b"", 4096)
    live.close()
    assert altered(cluster, upsertions=[("bob", 2, 4096)], salted_password=b"") == {
        "bob": ErrorCode.UNKNOWN_SERVER_ERROR
    }
    assert described(cluster).keys() == {"alice"}


def test_the_file_is_for_its_owner_alone(cluster: AdminCluster) -> None:
    altered(cluster, upsertions=[("alice", 1, 4096)])
    found = list(Path(cluster.path).parent.glob(f"{cluster.path.name}*"))
    assert found
    assert {path.stat().st_mode & 0o777 for path in found} == {0o600}
