"""The metrics of the processes that take requests, handlers and controller, and of every loop. Declarations only."""

from __future__ import annotations

from shm.metrics.metric import COUNTER, GAUGE, Metric

#: Of every process that serves requests: a turn is one round of its loop, in which it serves nobody else.
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
        "Turns of the loop that used more than 50 ms of processor time.",
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
        "Time that commits took.",
        "Mostly the system's: when it grows faster than commits do, the disk of the data directory is slow.",
    ),
    Metric(
        "write_failures",
        COUNTER,
        "writes",
        "Writes to logs that failed.",
        "For want of room: records are refused until there is some. Otherwise the partition is offline.",
    ),
    Metric(
        "segments_closed",
        COUNTER,
        "segments",
        "Segments that were closed to make room for others, though their partitions are written to.",
        "Each is opened again by its next write. If this keeps rising, raise the limit of open files.",
    ),
    Metric(
        "fetches_parked",
        COUNTER,
        "requests",
        "Fetches that had to wait for data.",
        "They found less than fetch.min.bytes.",
    ),
    *TURN_METRICS,
    Metric(
        "requests_dropped",
        COUNTER,
        "requests",
        "Requests that were dropped because processes had died in them, or in others with the same bytes.",
        "The log names API, client and address of each. Whatever kills a process is a fault of the broker.",
    ),
    Metric(
        "authorization_denied",
        COUNTER,
        "denials",
        "How often a client was denied what it asked for, by ACLs or because none allows it.",
        "See authorizer.class.name. The log names principal, operation, host and resource of each.",
    ),
    Metric(
        "overload_throttle_ns",
        GAUGE,
        "ns",
        "For how long each answer throttles its client now, because requests queue.",
        "Above 0 only with overload.queue.time.ms, while no request has waited less than that.",
    ),
    Metric(
        "overload_throttled",
        COUNTER,
        "responses",
        "Answers that have throttled their client because requests queue.",
        "See overload.queue.time.ms.",
    ),
    Metric(
        "fetches_not_parked",
        COUNTER,
        "requests",
        "Fetches that were answered without records at once because too many waited.",
        "Their clients ask again. rows_watched or operations_waiting shows of what there is too much.",
    ),
    Metric(
        "fetch_sessions_evicted",
        COUNTER,
        "sessions",
        "Fetch sessions that made room for others.",
        "They were not used for two minutes, or had fewer partitions. Their clients name all partitions again.",
    ),
    Metric(
        "fetch_sessions",
        GAUGE,
        "sessions",
        "Fetch sessions: consumers that name only what changes in what they fetch.",
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
        "Requests that wait: for records, for members of their group, for another process.",
        "Also those of clients that have gone: each ends with its own time limit.",
    ),
    Metric(
        "rows_watched",
        GAUGE,
        "partitions",
        "Partitions that waiting fetches watch, each counted for each of them.",
        "What parked fetches take in memory grows with it.",
    ),
    Metric(
        "works_waiting",
        GAUGE,
        "requests",
        "Requests that are served in slices, or wait for that.",
        "Those that take long: descriptions and listings of much, changes of many topics.",
    ),
    Metric(
        "producer_ids",
        GAUGE,
        "producers",
        "Producer ids that the partitions of a handler remember.",
        "As of the last checkpoint, which is taken once a minute. Each partition forgets those that have been silent "
        "longest when they are too many, and all after producer.id.expiration.ms.",
    ),
    Metric(
        "settings_bytes",
        GAUGE,
        "bytes",
        "What the settings of groups, client metrics subscriptions, quotas, users and ACLs take.",
        "Of the controller; 0 elsewhere.",
    ),
    Metric(
        "group_state_bytes",
        GAUGE,
        "bytes",
        "Memory that the groups of a handler take: members, subscriptions, committed offsets.",
        "Never too low, and too high for some seconds at most. At most the handler's part of group.state.max.bytes.",
    ),
    Metric(
        "group_state_refusals",
        COUNTER,
        "requests",
        "Members and offsets that were refused because groups take too much memory.",
        "Raise group.state.max.bytes, or find out who makes so many groups. The log names some.",
    ),
    Metric(
        "transaction_state_bytes",
        GAUGE,
        "bytes",
        "Memory that the transactional ids of a handler take, about.",
        "At most the handler's part of transaction.state.max.bytes.",
    ),
    Metric(
        "transaction_state_refusals",
        COUNTER,
        "requests",
        "New transactional ids that were refused because there are too many.",
        "They expire after transactional.id.expiration.ms.",
    ),
)
