"""The metrics of targets, handlers and controller, and of every loop. Declarations only."""

from __future__ import annotations

from rotunda.shm.metrics.metric import COUNTER, GAUGE, Metric

#: Of every process that handles requests. A turn is one pass of its loop; other requests wait meanwhile.
TURN_METRICS = (
    Metric(
        "slow_turns",
        COUNTER,
        "turns",
        "Turns of the loop that took more than 50 ms.",
        "Other requests waited meanwhile; the log names the work. It stays at 0 on a machine with enough CPU and disk.",
    ),
    Metric(
        "busy_turns",
        COUNTER,
        "turns",
        "Turns of the loop that used more than 50 ms of CPU time.",
        "The slow turns caused by the broker, not by the machine; up to 10 ms of earlier turns are counted with one.",
    ),
    Metric(
        "longest_turn_ns",
        GAUGE,
        "ns",
        "The longest turn of the loop since the process started.",
        "The longest wait of a request for other requests.",
    ),
)

HANDLER_METRICS = (
    Metric(
        "requests_handled",
        COUNTER,
        "requests",
        "Requests dispatched to their API function.",
        "Including parked ones.",
    ),
    Metric(
        "errors",
        COUNTER,
        "responses",
        "Responses with a Kafka error code.",
        "One per response, however many parts failed.",
    ),
    Metric(
        "idle_ns",
        COUNTER,
        "ns",
        "Time asleep on the bell.",
        "Its share of the growth of idle_ns and busy_ns is the handler's idle fraction of 0 to 1; the mean over all "
        "handlers is Kafka's RequestHandlerAvgIdlePercent. Row `E01`.",
    ),
    Metric("busy_ns", COUNTER, "ns", "Time awake.", "All other time."),
    Metric("records_appended", COUNTER, "records", "Records appended to logs.", "Duplicates not counted."),
    Metric("bytes_appended", COUNTER, "bytes", "Bytes appended to logs.", "As stored, compressed."),
    Metric(
        "commits",
        COUNTER,
        "writes",
        "Commits of staged batches.",
        "Records per commit show the effect of batching.",
    ),
    Metric(
        "commit_ns",
        COUNTER,
        "ns",
        "Time of commits.",
        "Mostly in the kernel: if it grows faster than commits, the disk of the data directory is slow.",
    ),
    Metric(
        "write_failures",
        COUNTER,
        "writes",
        "Failed writes to logs.",
        "On a full disk, records are rejected until there is space. After other errors the partition is offline.",
    ),
    Metric(
        "segments_closed",
        COUNTER,
        "segments",
        "Segments closed for lack of file descriptors.",
        "Each is reopened by its next write. If it keeps growing, raise the limit of open files.",
    ),
    Metric(
        "fetches_parked",
        COUNTER,
        "requests",
        "Fetches that waited for data.",
        "There was less than fetch.min.bytes.",
    ),
    *TURN_METRICS,
    Metric(
        "requests_dropped",
        COUNTER,
        "requests",
        "Poison requests dropped.",
        "The log names API, client and address of each. Report it: a request that kills a process is a bug of the "
        "broker.",
    ),
    Metric(
        "authorization_denied",
        COUNTER,
        "denials",
        "Operations denied by ACLs, or by their absence.",
        "See authorizer.class.name. The log names principal, operation, host and resource of each.",
    ),
    Metric(
        "overload_throttle_ns",
        GAUGE,
        "ns",
        "Throttle time of every response now, because requests queue.",
        "Above 0 only with overload.queue.time.ms, while every request has waited longer than that.",
    ),
    Metric(
        "overload_throttled",
        COUNTER,
        "responses",
        "Responses with a throttle time because requests queue.",
        "See overload.queue.time.ms.",
    ),
    Metric(
        "fetches_not_parked",
        COUNTER,
        "requests",
        "Fetches with an empty response at once: too many parked fetches.",
        "Clients fetch again. rows_watched and operations_waiting show which limit was reached.",
    ),
    Metric(
        "fetch_sessions_evicted",
        COUNTER,
        "sessions",
        "Evicted fetch sessions.",
        "They were unused for two minutes, or had fewer partitions. Their clients send full requests again.",
    ),
    Metric(
        "fetch_sessions",
        GAUGE,
        "sessions",
        "Incremental fetch sessions.",
        "At most max.incremental.fetch.session.cache.slots, all handlers together.",
    ),
    Metric(
        "fetch_session_partitions",
        GAUGE,
        "partitions",
        "Partitions in all fetch sessions.",
        "At most 200,000 in each handler; above it no session is created.",
    ),
    Metric(
        "operations_waiting",
        GAUGE,
        "requests",
        "Parked requests: waiting for records, group members or another process.",
        "Including those of disconnected clients, until their timeout.",
    ),
    Metric(
        "rows_watched",
        GAUGE,
        "partitions",
        "Partitions watched by parked fetches, counted for each fetch.",
        "The memory of parked fetches grows with it.",
    ),
    Metric(
        "works_waiting",
        GAUGE,
        "requests",
        "Requests served in slices, or waiting for it.",
        "Long requests: large descriptions and listings, changes of many topics.",
    ),
    Metric(
        "producer_ids",
        GAUGE,
        "producers",
        "Producer ids known to the partitions of a handler.",
        "As of the last checkpoint, once a minute. Above its limit a partition drops the longest idle producers, and "
        "all after producer.id.expiration.ms.",
    ),
    Metric(
        "settings_bytes",
        GAUGE,
        "bytes",
        "Memory of settings of groups, client metrics subscriptions, quotas, users and ACLs.",
        "Of the controller; 0 elsewhere.",
    ),
    Metric(
        "group_state_bytes",
        GAUGE,
        "bytes",
        "Memory of the groups of a handler: members, subscriptions, committed offsets.",
        "An upper bound, corrected within seconds. At most the handler's share of group.state.max.bytes.",
    ),
    Metric(
        "group_state_refusals",
        COUNTER,
        "requests",
        "Members and offsets rejected by group.state.max.bytes.",
        "Raise group.state.max.bytes, or find the clients that create so many groups. The log names some.",
    ),
    Metric(
        "transaction_state_bytes",
        GAUGE,
        "bytes",
        "Approximate memory of the transactional ids of a handler.",
        "At most the handler's share of transaction.state.max.bytes.",
    ),
    Metric(
        "transaction_state_refusals",
        COUNTER,
        "requests",
        "New transactional ids rejected by transaction.state.max.bytes.",
        "They expire after transactional.id.expiration.ms.",
    ),
)
