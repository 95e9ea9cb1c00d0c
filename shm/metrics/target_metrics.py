"""The metrics of targets, handlers and controller, and of every loop. Declarations only."""

from __future__ import annotations

from rotunda.shm.metrics.metric import COUNTER, GAUGE, Metric

#: Of every process that handles requests: a turn is one pass of its loop, during which nothing else is handled.
TURN_METRICS = (
    Metric(
        "slow_turns",
        COUNTER,
        "turns",
        "Turns of the loop that took more than 50 ms.",
        "Nobody else was served meanwhile; the log names what was being done. It stays at 0 on a machine that is not "
        "short of CPU or disk.",
    ),
    Metric(
        "busy_turns",
        COUNTER,
        "turns",
        "Turns of the loop that used more than 50 ms of CPU time.",
        "Those of the slow turns that are the broker's own doing, not the machine's; up to 10 ms of earlier turns are "
        "counted with one.",
    ),
    Metric(
        "longest_turn_ns",
        GAUGE,
        "ns",
        "The longest turn of the loop since the process started.",
        "How long a request may have waited for what others asked.",
    ),
)

HANDLER_METRICS = (
    Metric(
        "requests_handled",
        COUNTER,
        "requests",
        "Requests dispatched to their API function.",
        "Also parked ones.",
    ),
    Metric(
        "errors",
        COUNTER,
        "responses",
        "Responses with a Kafka error code.",
        "One each, however many parts failed.",
    ),
    Metric(
        "idle_ns",
        COUNTER,
        "ns",
        "Time asleep on the bell.",
        "Its growth divided by that of idle_ns and busy_ns together is the handler's idle fraction of 0 to 1; the mean "
        "over all handlers is Kafka's RequestHandlerAvgIdlePercent. Row `E01`.",
    ),
    Metric("busy_ns", COUNTER, "ns", "Time awake.", "All the time that is not idle_ns."),
    Metric("records_appended", COUNTER, "records", "Records appended to logs.", "Duplicates not counted."),
    Metric("bytes_appended", COUNTER, "bytes", "Bytes appended to logs.", "As stored, that is compressed."),
    Metric(
        "commits",
        COUNTER,
        "writes",
        "Commits of staged batches.",
        "Records per commit show how well batches form.",
    ),
    Metric(
        "commit_ns",
        COUNTER,
        "ns",
        "Time of commits.",
        "Mostly the system's: when it grows faster than commits do, the disk of the data directory is slow.",
    ),
    Metric(
        "write_failures",
        COUNTER,
        "writes",
        "Failed writes to logs.",
        "For want of room: records are refused until there is some. Otherwise the partition is offline.",
    ),
    Metric(
        "segments_closed",
        COUNTER,
        "segments",
        "Segments closed for lack of file descriptors.",
        "Each is opened again by its next write. If this keeps rising, raise the limit of open files.",
    ),
    Metric(
        "fetches_parked",
        COUNTER,
        "requests",
        "Fetches that waited for data.",
        "They found less than fetch.min.bytes.",
    ),
    *TURN_METRICS,
    Metric(
        "requests_dropped",
        COUNTER,
        "requests",
        "Poison requests dropped.",
        "The log names API, client and address of each. Whatever kills a process is a fault of the broker.",
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
        "Above 0 only with overload.queue.time.ms, while no request has waited less than that.",
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
        "Fetches answered empty at once because too many were parked.",
        "Their clients ask again. rows_watched or operations_waiting shows of what there is too much.",
    ),
    Metric(
        "fetch_sessions_evicted",
        COUNTER,
        "sessions",
        "Evicted fetch sessions.",
        "They were not used for two minutes, or had fewer partitions. Their clients name all partitions again.",
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
        "At most 200,000 in each handler; beyond them no session begins.",
    ),
    Metric(
        "operations_waiting",
        GAUGE,
        "requests",
        "Parked requests: waiting for records, group members or another process.",
        "Also those of clients that have gone: each ends with its own time limit.",
    ),
    Metric(
        "rows_watched",
        GAUGE,
        "partitions",
        "Partitions watched by parked fetches, counted for each fetch.",
        "What parked fetches take in memory grows with it.",
    ),
    Metric(
        "works_waiting",
        GAUGE,
        "requests",
        "Requests served in slices, or waiting for it.",
        "Those that take long: descriptions and listings of much, changes of many topics.",
    ),
    Metric(
        "producer_ids",
        GAUGE,
        "producers",
        "Producer ids known to the partitions of a handler.",
        "As of the last checkpoint, which is taken once a minute. Each partition forgets those that have been silent "
        "longest when they are too many, and all after producer.id.expiration.ms.",
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
        "Never too low, and too high for some seconds at most. At most the handler's part of group.state.max.bytes.",
    ),
    Metric(
        "group_state_refusals",
        COUNTER,
        "requests",
        "Members and offsets rejected by group.state.max.bytes.",
        "Raise group.state.max.bytes, or find out who makes so many groups. The log names some.",
    ),
    Metric(
        "transaction_state_bytes",
        GAUGE,
        "bytes",
        "Approximate memory of the transactional ids of a handler.",
        "At most the handler's part of transaction.state.max.bytes.",
    ),
    Metric(
        "transaction_state_refusals",
        COUNTER,
        "requests",
        "New transactional ids rejected by transaction.state.max.bytes.",
        "They expire after transactional.id.expiration.ms.",
    ),
)
