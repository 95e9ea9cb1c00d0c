"""The features of Java's clients, with the programs of ops/compat, which runs many more clients."""

from pathlib import Path

import pytest

from ops.compatibility import clients
from ops.compatibility.outcomes import Verdict
from ops.compatibility.target import Target
from tests.support.broker_process import BrokerProcess

BROKER_SETTINGS = {"group.initial.rebalance.delay.ms": 0}

pytestmark = [pytest.mark.slow, pytest.mark.needs("java")]


def assert_passes(key: str, target: Target) -> None:
    """Run one client and show its failures; every feature must have passed."""
    client = clients.by_key(key)
    outcomes = client.run(target)
    faults = [outcome for outcome in outcomes if outcome.verdict is not Verdict.PASSED]
    assert outcomes
    assert not faults, "\n".join(f"{outcome.feature}: {outcome.detail}" for outcome in faults)


def test_every_feature_of_streams_passes(broker: BrokerProcess) -> None:
    assert_passes("streams", Target(broker.bootstrap))


def test_every_feature_of_the_java_client_passes(broker_directory: Path) -> None:
    # Its records are years old, and a broker checks retention soon after its start.
    settings = {**BROKER_SETTINGS, "num.network.threads": 2, "num.io.threads": 2, "log.retention.ms": -1}
    broker = BrokerProcess(broker_directory, settings).start()
    try:
        assert_passes("java-client", Target(broker.bootstrap))
    finally:
        broker.stop()


def test_kafka_reads_the_files_of_a_stopped_broker(tmp_path) -> None:
    # Compaction removes offsets of the internal topics, and the check looks for missing ones. The records are old.
    settings = {**BROKER_SETTINGS, "num.io.threads": 2, "log.cleaner.enable": False, "log.retention.ms": -1}
    broker = BrokerProcess(tmp_path, settings, ephemeral=False).start()
    assert_passes("java-filling", Target(broker.bootstrap))
    broker.stop()
    assert_passes("java-files", Target(broker.bootstrap, data_dir=broker.data_dir))
