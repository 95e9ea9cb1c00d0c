"""One request of each group and transaction API, for tests that damage them."""

from __future__ import annotations

from typing import Any, Final

PROTOCOLS = [{"name": "range", "metadata": b"x"}]
JOIN = {
    "group_id": "group",
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "member_id": "",
    "protocol_type": "consumer",
    "protocols": PROTOCOLS,
}
PARTITION = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
COMMIT = {
    "group_id": "group",
    "generation_id_or_member_epoch": -1,
    "member_id": "",
    "topics": [{"name": "topic", "partitions": [PARTITION]}],
}
TXN_COMMIT = {
    "transactional_id": "id",
    "group_id": "group",
    "producer_id": 1,
    "producer_epoch": 0,
    "generation_id_or_member_epoch": -1,
    "topics": [{"name": "topic", "partitions": [PARTITION]}],
}
INIT = {"transactional_id": "id", "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
END = {"transactional_id": "id", "producer_id": 1, "producer_epoch": 0, "committed": True}
ADD = {
    "v3_and_below_transactional_id": "id",
    "v3_and_below_producer_id": 1,
    "v3_and_below_producer_epoch": 0,
    "v3_and_below_topics": [{"name": "topic", "partitions": [0]}],
}
ADD_MANY = {
    "transactions": [
        {
            "transactional_id": "id",
            "producer_id": 1,
            "producer_epoch": 0,
            "verify_only": False,
            "topics": [{"name": "topic", "partitions": [0]}],
        }
    ]
}
MARKERS = {
    "markers": [
        {
            "producer_id": 1,
            "producer_epoch": 0,
            "transaction_result": True,
            "topics": [{"name": "topic", "partition_indexes": [0]}],
            "coordinator_epoch": 0,
        }
    ]
}
MEMBER = {"group_id": "group", "generation_id": 1, "member_id": "m"}

#: (api key, version, values) of one request of each API about groups and transactions.
REQUESTS: Final[list[tuple[int, int, dict[str, Any]]]] = [
    (8, 9, COMMIT),
    (8, 2, COMMIT),
    (9, 9, {"groups": [{"group_id": "group", "topics": [{"name": "topic", "partition_indexes": [0]}]}]}),
    (9, 5, {"group_id": "group", "topics": [{"name": "topic", "partition_indexes": [0]}]}),
    (10, 4, {"key_type": 0, "coordinator_keys": ["group"]}),
    (11, 9, JOIN),
    (11, 2, JOIN),
    (12, 4, MEMBER),
    (12, 0, MEMBER),
    (13, 5, {"group_id": "group", "members": [{"member_id": "m", "group_instance_id": "i"}]}),
    (14, 5, MEMBER | {"protocol_type": "consumer", "protocol_name": "range", "assignments": []}),
    (14, 0, MEMBER | {"assignments": [{"member_id": "m", "assignment": b"x"}]}),
    (15, 5, {"groups": ["group", "other"]}),
    (16, 5, {"states_filter": ["Stable"], "types_filter": ["classic"]}),
    (22, 5, INIT),
    (24, 3, ADD),
    (24, 5, ADD_MANY),
    (25, 4, {"transactional_id": "id", "producer_id": 1, "producer_epoch": 0, "group_id": "group"}),
    (26, 5, END),
    (27, 1, MARKERS),
    (28, 5, TXN_COMMIT),
    (42, 2, {"groups_names": ["group", "other"]}),
    (47, 0, {"group_id": "group", "topics": [{"name": "topic", "partitions": [{"partition_index": 0}]}]}),
    (61, 0, {"topics": [{"name": "topic", "partition_indexes": [0]}]}),
    (65, 0, {"transactional_ids": ["id", "other"]}),
    (66, 2, {"state_filters": ["Ongoing"], "producer_id_filters": [1]}),
]
