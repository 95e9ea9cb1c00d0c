"""Kafka's broker metrics, and kafka_exporter's of groups, with their queries here. Printed in docs/metrics.md; pure."""

from __future__ import annotations

from typing import Final, NamedTuple


class KafkaMetric(NamedTuple):
    """Names of Kafka's metrics, and the equivalent query; where there is none, `text` has the reason."""

    names: str
    query: str
    text: str = ""


_AS_REQUESTS = "Counts requests, Kafka counts bytes or records."
_NOT_MEASURED = "Not measured separately; part of the stage local."

KAFKA_METRICS: Final = (
    KafkaMetric(
        "NetworkProcessorAvgIdlePercent, IdlePercent{networkProcessor}",
        "rate(rotunda_processor_io_wait_seconds_total[5m]) / (rate(rotunda_processor_io_wait_seconds_total[5m]) + "
        "rate(rotunda_processor_io_seconds_total[5m]))",
    ),
    KafkaMetric(
        "RequestHandlerAvgIdlePercent",
        'rate(rotunda_handler_idle_seconds_total{handler!="controller"}[5m]) / '
        '(rate(rotunda_handler_idle_seconds_total{handler!="controller"}[5m]) + '
        'rate(rotunda_handler_busy_seconds_total{handler!="controller"}[5m]))',
        "The mean over handlers, without the controller.",
    ),
    KafkaMetric("AcceptorBlockedPercent{listener}", "rate(rotunda_acceptor_blocked_seconds_total[5m])"),
    KafkaMetric("MemoryPoolAvailable", "sum(rotunda_processor_arena_free_bytes)"),
    KafkaMetric("MemoryPoolUsed", "sum(rotunda_processor_arena_used_bytes)"),
    KafkaMetric("MemoryPoolAvgDepletedPercent", "rate(rotunda_processor_arena_depleted_seconds_total[5m])"),
    KafkaMetric(
        "MemoryPoolDepletedTimeTotal",
        "sum(rotunda_processor_arena_depleted_seconds_total)",
        "In seconds, not nanoseconds.",
    ),
    KafkaMetric("AvailableRequestSize", "", "AutoMQ's. No semaphore limits waiting requests: see MemoryPoolAvailable."),
    KafkaMetric("NumIncrementalFetchSessions", "sum(rotunda_handler_fetch_sessions)"),
    KafkaMetric("NumIncrementalFetchPartitionsCached", "sum(rotunda_handler_fetch_session_partitions)"),
    KafkaMetric(
        "IncrementalFetchSessionEvictionsPerSec", "sum(rate(rotunda_handler_fetch_sessions_evicted_total[5m]))"
    ),
    KafkaMetric("RequestQueueSize", "sum(rotunda_request_queue_size)", "Includes requests in service."),
    KafkaMetric("ControlPlaneRequestQueueSize", "", "Control plane requests use the same rings."),
    KafkaMetric("ResponseQueueSize{processor}", "sum by (processor) (rotunda_response_queue_size)"),
    KafkaMetric("RequestsPerSec{request, version}", "rate(rotunda_requests_total[5m])"),
    KafkaMetric("DeprecatedRequestsPerSec", "rate(rotunda_deprecated_requests_total[5m])"),
    KafkaMetric("ErrorsPerSec{request, error}", "rate(rotunda_request_errors_total[5m])"),
    KafkaMetric(
        "RequestQueueTimeMs, LocalTimeMs, RemoteTimeMs, ResponseQueueTimeMs, ResponseSendTimeMs, TotalTimeMs",
        "histogram_quantile(0.99, sum by (le, stage) (rate(rotunda_request_duration_seconds_bucket[5m])))",
        "In seconds, by stage.",
    ),
    KafkaMetric("ThrottleTimeMs", "histogram_quantile(0.99, rate(rotunda_request_throttle_seconds_bucket[5m]))"),
    KafkaMetric(
        "RequestBytes, request-size-avg", "histogram_quantile(0.5, rate(rotunda_request_size_bytes_bucket[5m]))"
    ),
    KafkaMetric("MessageConversionsTimeMs, TemporaryMemoryBytes, ProduceMessageConversionsPerSec", "", _NOT_MEASURED),
    KafkaMetric("FetchMessageConversionsPerSec", "", "Responses are never converted."),
    KafkaMetric("connection-count", "sum(rotunda_processor_connections)"),
    KafkaMetric("connections{client}", "rotunda_client_connections"),
    KafkaMetric("connection-creation-rate", "rate(rotunda_processor_connections_opened_total[5m])"),
    KafkaMetric("connection-close-rate", "rate(rotunda_processor_connections_closed_total[5m])", "By cause."),
    KafkaMetric("successful-authentication-total", "sum(rotunda_processor_authentications_succeeded_total)"),
    KafkaMetric("failed-authentication-total", "sum(rotunda_processor_authentications_failed_total)"),
    KafkaMetric("successful-reauthentication-total", "sum(rotunda_processor_reauthentications_succeeded_total)"),
    KafkaMetric("failed-reauthentication-total", "sum(rotunda_processor_reauthentications_failed_total)"),
    KafkaMetric(
        "reauthentication-latency-avg",
        "sum(rate(rotunda_processor_reauthentication_seconds_total[5m])) / "
        "sum(rate(rotunda_processor_reauthentications_succeeded_total[5m]))",
    ),
    KafkaMetric("reauthentication-latency-max", "", "Not measured; the mean is."),
    KafkaMetric(
        "successful-authentication-rate",
        "sum(rate(rotunda_processor_authentications_succeeded_total[5m]))",
        "The other -rate of authentications likewise.",
    ),
    KafkaMetric("successful-authentication-no-reauth-total", "", "Not counted separately; part of the succeeded ones."),
    KafkaMetric(
        "expired-connections-killed-count, ExpiredConnectionsKilledCount",
        "sum(rotunda_processor_sessions_expired_total)",
    ),
    KafkaMetric("connection-accept-rate{listener}", "rate(rotunda_acceptor_connections_accepted_total[5m])"),
    KafkaMetric("broker-connection-accept-rate", "sum(rate(rotunda_acceptor_connections_accepted_total[5m]))"),
    KafkaMetric("connection-accept-rate{ip}", "", "See the status page and the request log."),
    KafkaMetric(
        "connection-accept-throttle-time{listener}",
        "rate(rotunda_acceptor_accept_throttle_seconds_total[5m]) / rate(rotunda_acceptor_accept_throttled_total[5m])",
        "In seconds.",
    ),
    KafkaMetric(
        "ip-connection-accept-throttle-time{listener}",
        "rate(rotunda_acceptor_ip_accept_throttle_seconds_total[5m]) / "
        "rate(rotunda_acceptor_ip_accept_throttled_total[5m])",
        "In seconds.",
    ),
    KafkaMetric("incoming-byte-rate", "rate(rotunda_processor_bytes_received_total[5m])"),
    KafkaMetric("outgoing-byte-rate", "rate(rotunda_processor_bytes_sent_total[5m])"),
    KafkaMetric("request-rate", "rate(rotunda_processor_requests_received_total[5m])"),
    KafkaMetric("response-rate", "rate(rotunda_processor_responses_sent_total[5m])"),
    KafkaMetric("select-rate", "rate(rotunda_processor_polls_total[5m])"),
    KafkaMetric("MessagesInPerSec{topic}", "rate(rotunda_topic_records_in_total[5m])"),
    KafkaMetric("BytesInPerSec{topic}", "rate(rotunda_topic_bytes_in_total[5m])"),
    KafkaMetric("BytesOutPerSec{topic}", "rate(rotunda_topic_bytes_out_total[5m])"),
    KafkaMetric(
        "TotalProduceRequestsPerSec",
        'rate(rotunda_requests_total{api="Produce"}[5m])',
        "TotalFetchRequestsPerSec likewise. By topic: the request log.",
    ),
    KafkaMetric(
        "FailedProduceRequestsPerSec",
        'rate(rotunda_request_errors_total{api="Produce",error!="NONE"}[5m])',
        "FailedFetchRequestsPerSec likewise. By topic: the request log.",
    ),
    KafkaMetric(
        "BytesRejectedPerSec",
        'rate(rotunda_request_errors_total{error=~"MESSAGE_TOO_LARGE|RECORD_LIST_TOO_LARGE"}[5m])',
        _AS_REQUESTS,
    ),
    KafkaMetric(
        "InvalidMessageCrcRecordsPerSec, InvalidMagicNumberRecordsPerSec",
        'rate(rotunda_request_errors_total{error=~"CORRUPT_MESSAGE|UNSUPPORTED_FOR_MESSAGE_FORMAT"}[5m])',
        _AS_REQUESTS,
    ),
    KafkaMetric(
        "InvalidOffsetOrSequenceRecordsPerSec, NoKeyCompactedTopicRecordsPerSec",
        'rate(rotunda_request_errors_total{error=~"OUT_OF_ORDER_SEQUENCE_NUMBER|INVALID_RECORD"}[5m])',
        _AS_REQUESTS,
    ),
    KafkaMetric("PartitionCount, LeaderCount, GlobalPartitionCount", "sum(rotunda_topic_partitions)"),
    KafkaMetric("GlobalTopicCount", "count(rotunda_topic_partitions)"),
    KafkaMetric("OfflinePartitionsCount", "sum(rotunda_topic_offline_partitions)"),
    KafkaMetric("OfflineLogDirectoryCount", "rotunda_offline_log_directories"),
    KafkaMetric("ActiveControllerCount", 'rotunda_process_ready{role="controller"}'),
    KafkaMetric("BrokerState", "rotunda_draining", "1 while the broker stops."),
    KafkaMetric("ProducerIdCount", "sum(rotunda_handler_producer_ids)"),
    KafkaMetric(
        "PurgatorySize{delayedOperation}", "sum(rotunda_handler_operations_waiting)", "All operations together."
    ),
    KafkaMetric(
        "kafka_consumergroup_lag{consumergroup, topic, partition}",
        'label_replace(rotunda_group_partition_lag_records, "consumergroup", "$1", "group", "(.*)")',
        "Of kafka_exporter, for a recording rule. With metrics.per.partition.",
    ),
    KafkaMetric(
        "kafka_consumergroup_lag_sum{consumergroup, topic}",
        'label_replace(rotunda_group_lag_records, "consumergroup", "$1", "group", "(.*)")',
        "Of kafka_exporter, for a recording rule.",
    ),
    KafkaMetric(
        "kafka_consumergroup_current_offset{consumergroup, topic, partition}",
        'label_replace(rotunda_group_partition_offset, "consumergroup", "$1", "group", "(.*)")',
        "Of kafka_exporter, for a recording rule. With metrics.per.partition.",
    ),
    KafkaMetric("NumGroups, consumer-group-count{state}", "sum by (kind, state) (rotunda_groups)"),
    KafkaMetric("group-count{protocol}", "sum by (kind) (rotunda_groups)"),
    KafkaMetric("share-group-count{state}", 'sum by (state) (rotunda_groups{kind="share"})'),
    KafkaMetric(
        "share-group-rebalance-rate, share-group-rebalance-count",
        "",
        "Share groups do not rebalance.",
    ),
    KafkaMetric(
        "RecordAcknowledgementsPerSec{ackType}",
        "sum(rate(rotunda_handler_share_records_accepted_total[5m]))",
        "Release and Reject likewise. By group: rotunda_share_group_accepted_total.",
    ),
    KafkaMetric(
        "InFlightMessageCount, InFlightBatchMessageCount{group, topic, partition}",
        "rotunda_share_group_records_in_flight",
        "By topic; the status page has partitions.",
    ),
    KafkaMetric(
        "AcquisitionLockTimeoutPerSec{group, topic, partition}",
        "rate(rotunda_share_group_locks_expired_total[5m])",
        "In records, by topic.",
    ),
    KafkaMetric("DeadLetterQueueRecordCount{group}", "sum by (group) (rotunda_share_group_dead_letters_total)"),
    KafkaMetric(
        "DeadLetterQueueFailedProduceRequestsPerSec{group}",
        "sum(rate(rotunda_handler_dead_letter_failures_total[5m]))",
        "Of all groups; the log names the group.",
    ),
    KafkaMetric("ShareSessionsCount", "sum(rotunda_handler_share_sessions)"),
    KafkaMetric(
        "TotalShareFetchRequestsPerSec",
        'rate(rotunda_requests_total{api="ShareFetch"}[5m])',
        "Of acknowledgements likewise.",
    ),
    KafkaMetric(
        "FailedShareFetchRequestsPerSec",
        'rate(rotunda_request_errors_total{api="ShareFetch",error!="NONE"}[5m])',
        "Of acknowledgements likewise.",
    ),
    KafkaMetric(
        "InFlightBatchCount, SharePartitionsCount, ShareSessionEvictionsPerSec, PartitionLoadTimeMs, "
        "DeadLetterQueueTotalProduceRequestsPerSec, RequestTopicPartitionsFetchRatio, TopicPartitionsAcquireTimeMs, "
        "FetchLockTimeMs, FetchLockRatio",
        "",
        "Not counted; one process owns a group, without a lock.",
    ),
    KafkaMetric(
        "share-coordinator-metrics: write-rate, write-latency, last-pruned-offset",
        "",
        "Not counted; see rotunda_handler_commit_seconds_total.",
    ),
    KafkaMetric(
        "Size, LogStartOffset, LogEndOffset{topic, partition}",
        "",
        "With metrics.per.partition: rotunda_partition_log_bytes and its neighbours.",
    ),
    KafkaMetric("NumLogSegments, LogFlushRateAndTimeMs, ExpiresPerSec", "", "Not measured."),
    KafkaMetric(
        "group-completed-rebalance-rate, partition-load-time-max, event-queue-size",
        "",
        "Not measured; the report `groups` has rebalances.",
    ),
    KafkaMetric("offset-commit-rate", 'sum(rate(rotunda_requests_total{api="OffsetCommit"}[5m]))', "In requests."),
    KafkaMetric(
        "UnderReplicatedPartitions, UnderMinIsrPartitionCount, IsrShrinksPerSec, ReplicationBytesInPerSec, MaxLag, "
        "UncleanLeaderElectionsPerSec, ReassigningPartitions",
        "",
        "One broker does not replicate: each would be 0.",
    ),
    KafkaMetric(
        "raft-metrics, broker-metadata-metrics, MetadataErrorCount, FencedBrokerCount", "", "No metadata quorum."
    ),
    KafkaMetric("RemoteFetchBytesPerSec and the other Remote…", "", "Remote storage is not supported."),
    KafkaMetric("LinuxDiskReadBytes, LinuxDiskWriteBytes, java.lang", "", "Of the machine: see a node exporter."),
    KafkaMetric("max-dirty-percent", "rotunda_cleaner_max_dirty_ratio"),
    KafkaMetric("uncleanable-partitions-count", "rotunda_cleaner_uncleanable_partitions"),
    KafkaMetric(
        "ControlPlane…",
        "",
        "The processor of control.plane.listener.name has the metrics of every processor.",
    ),
    KafkaMetric(
        "Produce, Fetch, Request, ControllerMutation: throttle-time{user, client-id}",
        "rate(rotunda_client_quota_throttle_seconds_total[5m]) / rate(rotunda_client_quota_throttled_total[5m])",
        "In seconds, by quota. Of all clients together: rotunda_quota_throttle_seconds_total, without client_.",
    ),
    KafkaMetric(
        "Produce, Fetch: byte-rate; Request: request-time{user, client-id}",
        "rotunda_client_quota_rate",
        "By quota; the limit is rotunda_client_quota_limit.",
    ),
    KafkaMetric("ControllerMutation: mutation-rate, tokens{user, client-id}", "", "Not measured; throttle-time is."),
)
