"""kafka-python 3: groups, static members, transactions, admin."""

from checks import require, run, unique, until
from features import fill, new_topic, of_groups, of_transactions, poll
from kafka.admin import KafkaAdminClient

from ops.clients.library import Membership
from ops.clients.with_kafka_python import library


def admin(bootstrap: str) -> None:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    ours = library(bootstrap)
    topic, group = new_topic(ours, 1), unique("group")
    fill(ours, topic, 1, 10)
    member = ours.member(topic, Membership(group), None)
    values: list[str] = []
    until("10 values", lambda: poll((member,), values) and len(values) >= 10)
    member.commit({0: 10})
    require(group in str(client.list_groups()), "group in str(client.list_groups())")
    require("Stable" in str(client.describe_groups([group])), "'Stable' in str(client.describe_groups([group]))")
    require("10" in str(client.list_group_offsets(group)), "'10' in str(client.list_group_offsets(group))")
    member.close()
    client.list_transactions()
    client.describe_metadata_quorum()
    require("transaction.version" in str(client.describe_features()), "no transaction.version")
    client.delete_groups([group])
    require(group not in str(client.list_groups()), "group not in str(client.list_groups())")
    client.close()


if __name__ == "__main__":
    run(
        {
            **of_groups(library, ("range", "sticky")),
            **of_transactions(library),
            "admin: groups, offsets, features": admin,
        }
    )
