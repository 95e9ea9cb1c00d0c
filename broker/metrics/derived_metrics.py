"""The metrics that readers derive from slots, rings, partition rows and snapshots, and that no process writes.

Declared as in `shm.metrics.catalogue`, under the names that they have in /metrics; `keys` are their labels.
"""

from __future__ import annotations

from rotunda.shm.metrics.metric import COUNTER, GAUGE, Metric

_PARTITION = ("topic", "partition")
_GROUP_TOPIC = ("group", "topic")
_GROUP_PARTITION = ("group", "topic", "partition")
_PROCESS = ("role", "index")
_RING = ("ring", "source", "destination")
_QUOTA = ("quota", "user", "client_id")
_ONLY_WHEN_ASKED = "Only with metrics.per.partition; one series each."

_SINCE_LOADED = "Since its handler started, or its offsets were reset. Collected while it is read, as groups."

#: The counters of a share group in a topic.
SHARE_GROUP_COUNTERS = {
    "delivered": "Deliveries of records to share consumers.",
    "redelivered": "Those of records that had been delivered before.",
    "accepted": "Records accepted by a share group.",
    "released": "Records released for another delivery.",
    "rejected": "Records rejected.",
    "locks_expired": "Acquired records whose lock ran out.",
    "dead_letters": "Records given up to a dead letter topic.",
}

PROCESS_METRICS = (
    Metric("build_info", GAUGE, "1", "The broker's version, as a label.", "Always 1.", keys=("version",)),
    Metric("draining", GAUGE, "0/1", "Whether the broker is stopping.", "1 from the first stop signal."),
    Metric(
        "process_ready",
        GAUGE,
        "0/1",
        "Whether a process runs and has finished its start.",
        "0 while it is being replaced.",
        keys=_PROCESS,
    ),
    Metric(
        "process_restarts_total",
        COUNTER,
        "restarts",
        "Replacements of a process that died.",
        "The status page and the log have its last error.",
        keys=_PROCESS,
    ),
    Metric(
        "process_heartbeat_age_seconds",
        GAUGE,
        "seconds",
        "Time since the last pass of a process's loop.",
        "Every loop runs once a second even when idle; at process.hang.timeout.ms the process is killed and replaced.",
        keys=_PROCESS,
    ),
)

STORAGE_METRICS = (
    Metric(
        "storage_state",
        GAUGE,
        "0-4",
        "State of the disk of the data directory: 0 is good.",
        "0: enough space. 1: less than storage.free.warn.bytes. 2: the request log has stopped. 3: records are "
        "rejected. 4: the data directory was removed.",
    ),
    Metric("storage_free_bytes", GAUGE, "bytes", "Free bytes of that disk.", "Updated every second."),
    Metric(
        "storage_refuses_records",
        GAUGE,
        "0/1",
        "Whether records are rejected because of the disk.",
        "Also 1 when writes fail for a file system quota, which the free space does not show; the status page has the "
        "reason.",
    ),
    Metric(
        "offline_log_directories",
        GAUGE,
        "directories",
        "Missing data directories.",
        "Kafka's OfflineLogDirectoryCount. For single partitions see topic_offline_partitions.",
    ),
)

RING_METRICS = (
    Metric(
        "ring_used_bytes",
        GAUGE,
        "bytes",
        "Bytes in a ring: published and not yet released.",
        "request and response: between processors and handlers; peer: between handlers; recorder: to the recorder. "
        "The reader of a ring that stays full does not keep up.",
        keys=_RING,
    ),
    Metric("ring_capacity_bytes", GAUGE, "bytes", "Size of a ring.", "See request.ring.bytes.", keys=_RING),
    Metric(
        "request_queue_size",
        GAUGE,
        "requests",
        "Unfinished requests of a handler.",
        "The sum is Kafka's RequestQueueSize, plus the requests in service. Rows `D01`, `D02`.",
        keys=("processor", "handler"),
    ),
    Metric(
        "response_queue_size",
        GAUGE,
        "responses",
        "Responses waiting for their processor.",
        "The sum over handlers is Kafka's ResponseQueueSize{processor}. Row `D06`.",
        keys=("processor", "handler"),
    ),
)

TOPIC_METRICS = (
    Metric("topic_partitions", GAUGE, "partitions", "Partitions of a topic.", "As configured.", keys=("topic",)),
    Metric(
        "topic_offline_partitions",
        GAUGE,
        "partitions",
        "Partitions of a topic that are not served.",
        "Their log is damaged or not open yet; see the broker's log.",
        keys=("topic",),
    ),
    Metric("topic_log_bytes", GAUGE, "bytes", "Size of a topic's segments.", "Without indexes.", keys=("topic",)),
    Metric(
        "topic_records_in_total",
        COUNTER,
        "records",
        "Records appended to a topic.",
        "Kafka's MessagesInPerSec. Markers of transactions count, duplicates do not.",
        keys=("topic",),
    ),
    Metric(
        "topic_bytes_in_total",
        COUNTER,
        "bytes",
        "Bytes appended to a topic, as stored.",
        "Kafka's BytesInPerSec. Compressed batches count with their compressed size.",
        keys=("topic",),
    ),
    Metric(
        "topic_bytes_out_total",
        COUNTER,
        "bytes",
        "Bytes of a topic's records in responses to fetches.",
        "Kafka's BytesOutPerSec. Counted when the response is complete.",
        keys=("topic",),
    ),
    Metric(
        "partition_log_start_offset",
        GAUGE,
        "offset",
        "First offset of a partition.",
        _ONLY_WHEN_ASKED,
        keys=_PARTITION,
    ),
    Metric("partition_log_end_offset", GAUGE, "offset", "Log end of a partition.", _ONLY_WHEN_ASKED, keys=_PARTITION),
    Metric(
        "partition_last_stable_offset",
        GAUGE,
        "offset",
        "Last stable offset of a partition.",
        _ONLY_WHEN_ASKED,
        keys=_PARTITION,
    ),
    Metric("partition_log_bytes", GAUGE, "bytes", "Size of a partition's segments.", _ONLY_WHEN_ASKED, keys=_PARTITION),
)

GROUP_METRICS = (
    Metric(
        "groups",
        GAUGE,
        "groups",
        "Groups by kind and state.",
        "Collected while it is read, as by Prometheus; absent in the first read.",
        keys=("kind", "state"),
    ),
    Metric(
        "group_members", GAUGE, "members", "Members of a group.", "0 for a group with offsets only.", keys=("group",)
    ),
    Metric(
        "group_lag_records",
        GAUGE,
        "records",
        "Unread offsets of a group in a topic, up to the log end.",
        "Committed offsets and log ends are of the same instant, so it is never negative. Partitions with an unknown "
        "lag are left out and counted in group_unknown_lag_partitions; absent when all are unknown.",
        keys=_GROUP_TOPIC,
    ),
    Metric(
        "group_committed_lag_records",
        GAUGE,
        "records",
        "Unread offsets of a group in a topic, up to the last stable offset.",
        "0 while group_lag_records grows: an open transaction blocks consumers.",
        keys=_GROUP_TOPIC,
    ),
    Metric(
        "group_lag_seconds",
        GAUGE,
        "seconds",
        "Age of the oldest unread record of a group in a topic.",
        "The maximum of its partitions; 0 when everything was read. By the first timestamp of the record's batch. "
        "Absent when unknown.",
        keys=_GROUP_TOPIC,
    ),
    Metric(
        "group_unknown_lag_partitions",
        GAUGE,
        "partitions",
        "Partitions of a topic with an unknown lag of a group.",
        "The partition was deleted or is offline, or the committed offset is above its end.",
        keys=_GROUP_TOPIC,
    ),
    Metric("group_partition_offset", GAUGE, "offset", "Committed offset.", _ONLY_WHEN_ASKED, keys=_GROUP_PARTITION),
    Metric(
        "group_partition_lag_records", GAUGE, "records", "Lag of a partition.", _ONLY_WHEN_ASKED, keys=_GROUP_PARTITION
    ),
    Metric(
        "group_partition_lag_seconds",
        GAUGE,
        "seconds",
        "Age of the oldest unread record of a partition.",
        _ONLY_WHEN_ASKED,
        keys=_GROUP_PARTITION,
    ),
    Metric(
        "share_group_records_in_flight",
        GAUGE,
        "records",
        "Records of a share group between the start offset and the last acquired record.",
        "At share.partition.max.record.locks of a partition no further record is acquired.",
        keys=_GROUP_TOPIC,
    ),
    Metric(
        "share_group_records_waiting",
        GAUGE,
        "records",
        "Records in flight that wait for another delivery.",
        "Released, or their lock ran out.",
        keys=_GROUP_TOPIC,
    ),
    *(
        Metric(f"share_group_{name}_total", COUNTER, "records", text, _SINCE_LOADED, keys=_GROUP_TOPIC)
        for name, text in SHARE_GROUP_COUNTERS.items()
    ),
    Metric(
        "groups_left_out",
        GAUGE,
        "groups",
        "Groups of a handler left out of its snapshot.",
        "They are counted in groups, without series of their own.",
        keys=("handler",),
    ),
    Metric("transactions", GAUGE, "transactional ids", "Transactional ids by state.", "As groups.", keys=("state",)),
    Metric(
        "transaction_oldest_age_seconds",
        GAUGE,
        "seconds",
        "Age of the oldest open transaction.",
        "0 without any. Above transaction.timeout.ms: it cannot be ended, and read_committed consumers wait.",
    ),
)

QUOTA_METRICS = (
    Metric(
        "client_quota_rate",
        GAUGE,
        "of the quota",
        "Current usage of a quota by a client, per second.",
        "Kafka's byte-rate and request-time: bytes for producer_byte_rate and consumer_byte_rate, percent of the time "
        "of one thread for request_percentage; over quota.window.num windows. Labels that the quota does not "
        "distinguish are missing. Absent for controller_mutation_rate, a token bucket, and after an hour without use.",
        keys=_QUOTA,
    ),
    Metric(
        "client_quota_limit",
        GAUGE,
        "of the quota",
        "Limit of that quota.",
        "In the unit of client_quota_rate.",
        keys=_QUOTA,
    ),
    Metric(
        "client_quota_throttled_total",
        COUNTER,
        "responses",
        "Responses to a client with a throttle time of a quota.",
        "Of several exceeded quotas, the one with the longest throttle time.",
        keys=_QUOTA,
    ),
    Metric(
        "client_quota_throttle_seconds_total",
        COUNTER,
        "seconds",
        "Sum of those throttle times.",
        "Divided by their number it is Kafka's throttle-time of a client.",
        keys=_QUOTA,
    ),
    Metric(
        "client_quotas_left_out",
        GAUGE,
        "quotas",
        "Client quotas without series of their own.",
        "Throttled clients are listed first, then those nearest to their limit.",
    ),
)

CLIENT_METRICS = (
    Metric(
        "client_metric",
        GAUGE,
        "the client's",
        "Latest value of a metric that a client pushes.",
        "Only with metrics.per.client. Of a delta the sum since the instance is known, of a histogram the sum of its "
        "values. At most 2,000 of each handler.",
        keys=("instance", "client_id", "metric", "attributes"),
    ),
    Metric(
        "client_instances_left_out",
        GAUGE,
        "instances",
        "Client instances of a handler left out of its snapshot.",
        "Those that pushed longest ago, beyond 2,000 values.",
        keys=("handler",),
    ),
)

REQUEST_LOG_METRICS = (
    Metric(
        "request_log_rows_total",
        COUNTER,
        "rows",
        "Rows of finished requests, by outcome.",
        "pushed: sent to the recorder. skipped: by sampling; other rows have a higher weight. dropped: the ring was "
        "full. lost: in the memory of a killed processor. The last two are in the dataset gaps.",
        keys=("outcome",),
    ),
    Metric(
        "request_log_dropped_total",
        COUNTER,
        "rows",
        "Rows and events lost because a ring was full.",
        "Each loss is a row of the dataset gaps.",
    ),
)

DERIVED: dict[str, tuple[Metric, ...]] = {
    "processes": PROCESS_METRICS,
    "disk": STORAGE_METRICS,
    "rings": RING_METRICS,
    "topics": TOPIC_METRICS,
    "groups and transactions": GROUP_METRICS,
    "quotas of clients": QUOTA_METRICS,
    "metrics of clients": CLIENT_METRICS,
    "request log": REQUEST_LOG_METRICS,
}
