"""Clusters as in the metadata, for tests of code that reads them."""

from __future__ import annotations

from rotunda.broker.client.network.snapshot import ClusterSnapshot, Node, PartitionMetadata

TOPIC = "t"


def cluster_of(leaders: list[int | None], epoch: int = 1) -> ClusterSnapshot:
    """Return a cluster in which the partitions of `TOPIC` have these leaders."""
    nodes = {leader: Node(leader, f"host-{leader}", 9092) for leader in leaders if leader is not None}
    partitions = {
        (TOPIC, number): PartitionMetadata(TOPIC, number, leader_id=leader, leader_epoch=epoch)
        for number, leader in enumerate(leaders)
    }
    return ClusterSnapshot(nodes=nodes, partitions=partitions)
