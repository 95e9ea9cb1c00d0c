"""confluent-kafka (librdkafka): groups of both protocols, static and cooperative members, transactions, admin."""

from checks import equal, require, run, unique, until
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from features import fill, new_topic, of_groups, of_transactions, poll

from ops.clients.library import Membership
from ops.clients.with_confluent import library

WAIT_SECONDS = 30


def admin(bootstrap: str) -> None:
    client, ours = AdminClient({"bootstrap.servers": bootstrap}), library(bootstrap)
    topic, group = new_topic(ours, 2), unique("group")
    fill(ours, topic, 2, 10)
    member = ours.member(topic, Membership(group), None)
    values: list[str] = []
    until("10 values", lambda: poll((member,), values) and len(values) >= 10)
    member.commit({0: 5, 1: 5})
    described = client.describe_consumer_groups([group])[group].result(WAIT_SECONDS)
    require(described.state is ConsumerGroupState.STABLE, described.state)
    equal(len(described.members), 1)
    listed = client.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(WAIT_SECONDS)
    require(group in {row.group_id for row in listed.valid}, listed.valid)
    member.close()
    wanted = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 2)])]
    client.alter_consumer_group_offsets(wanted)[group].result(WAIT_SECONDS)
    found = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(WAIT_SECONDS)
    equal({row.partition: row.offset for row in found.topic_partitions}, {0: 2, 1: 5})
    end = client.list_offsets(
        {TopicPartition(topic, 0): OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_COMMITTED
    )
    equal(end[TopicPartition(topic, 0)].result(WAIT_SECONDS).offset, 5)
    client.delete_consumer_groups([group])[group].result(WAIT_SECONDS)
    listed = client.list_consumer_groups().result(WAIT_SECONDS)
    require(group not in {row.group_id for row in listed.valid}, listed.valid)


if __name__ == "__main__":
    run(
        {
            **of_groups(library, ("range", "cooperative-sticky")),
            **of_groups(library, ("uniform", "range"), "consumer"),
            **of_transactions(library),
            "admin: groups and offsets": admin,
        }
    )
