"""confluent-kafka's ShareConsumer (librdkafka): members of a share group, and acknowledge types."""

from checks import require, run, unique, until
from confluent_kafka import AcknowledgeType, Message, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from features import fill, new_topic

from ops.clients.with_confluent import library

WAIT_SECONDS = 30


def share_consumer(bootstrap: str, group: str, topic: str, mode: str) -> ShareConsumer:
    """Return a member of a share group that reads from the beginning."""
    reset = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[reset])
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.incremental_alter_configs([resource])[resource].result(WAIT_SECONDS)
    consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group, "share.acknowledgement.mode": mode})
    consumer.subscribe([topic])
    return consumer


def poll_share(consumer: ShareConsumer, into: list[Message]) -> bool:
    """Poll once; returns True, for use in conditions."""
    for message in consumer.poll(0.1):
        require(message.error() is None, message.error())
        into.append(message)
    return True


def two_members(bootstrap: str) -> None:
    """Two members accept different records by polling, all together; a third one gets only later records."""
    topic, group = new_topic(library(bootstrap)), unique("group")
    members = [share_consumer(bootstrap, group, topic, "implicit") for _ in range(2)]
    values: list[Message] = []
    fill(library(bootstrap), topic, 4, 100)
    until("100 values", lambda: all(poll_share(each, values) for each in members) and len(values) >= 100)
    require(len({each.value() for each in values}) == len(values) == 100, len(values))
    for each in members:
        each.commit_sync(WAIT_SECONDS)
        each.close()
    fill(library(bootstrap), topic, 4, 8, "later")
    third, later = share_consumer(bootstrap, group, topic, "implicit"), list[Message]()
    until("8 later values", lambda: poll_share(third, later) and len(later) >= 8)
    third.close()
    require({each.value() for each in later} == {b"later%d" % number for number in range(8)}, len(later))


def types_of_acknowledgements(bootstrap: str) -> None:
    """Release a record, which returns also after its member has left; accept and reject others, which do not."""
    topic, group = new_topic(library(bootstrap), 1), unique("group")
    fill(library(bootstrap), topic, 1, 3)
    consumer, first = share_consumer(bootstrap, group, topic, "explicit"), list[Message]()
    until("3 values", lambda: poll_share(consumer, first) and len(first) >= 3)
    types = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT)
    for message, kind in zip(first, types, strict=True):
        consumer.acknowledge(message, kind)
    consumer.commit_sync(WAIT_SECONDS)
    again: list[Message] = []
    until("the released value", lambda: poll_share(consumer, again) and again)
    consumer.acknowledge(again[0], AcknowledgeType.RELEASE)
    consumer.close()
    other, last = share_consumer(bootstrap, group, topic, "implicit"), list[Message]()
    fill(library(bootstrap), topic, 1, 1, "later")
    until("two values", lambda: poll_share(other, last) and len(last) >= 2)
    other.close()
    require([each.value() for each in (*again, *last)] == [b"v1", b"v1", b"later0"], len(last))


if __name__ == "__main__":
    run(
        {
            "share: two members get different records": two_members,
            "share: accept, release and reject": types_of_acknowledgements,
        }
    )
