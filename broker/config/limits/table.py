"""The limits on resources that clients create: the maximum, its metric, the effect beyond it, and its end.

One table. docs/limits.md is printed from it (`page`), and a test walks it: each limit is an existing setting or
constant, each metric is one of /metrics. Every new resource that clients can create many of gets a row here. Read when
the page is made or checked; nothing in it runs.
"""

from __future__ import annotations

from rotunda.broker.config.limits.connections import CONNECTIONS
from rotunda.broker.config.limits.metadata import METADATA
from rotunda.broker.config.limits.rows import Area, Limit

_REQUESTS = Area(
    title="Requests",
    limits=(
        Limit(
            name="Connections with a known address and software, of each processor; 64 bytes of it",
            bounds=("rotunda.shm.tables.client_hosts:ROWS",),
            metrics=("rotunda_processor_connections",),
            beyond="they are described without them",
            end="with the connection",
        ),
        Limit(
            name="Unanswered requests of a connection",
            bounds=("pipeline.max",),
            metrics=("rotunda_processor_mutes_total",),
            beyond="reading the connection pauses until some have responses",
            end="with their responses",
        ),
        Limit(
            name="Bytes of unanswered requests of a connection, except Produce",
            bounds=("pipeline.max.bytes",),
            metrics=("rotunda_processor_mutes_total",),
            beyond="reading the connection pauses until some have responses",
            end="with their responses",
        ),
        Limit(
            name="Bytes of copies of unanswered requests for a handler's replacement; in addition, of each connection",
            bounds=("pipeline.max.total.bytes", "rotunda.broker.network.processor.kept_requests:OWN_BYTES"),
            metrics=("rotunda_processor_requests_kept_bytes", "rotunda_processor_requests_not_kept_total"),
            beyond="a connection gets one more request, without a copy; reading pauses until its requests have "
            "responses",
            end="with their responses",
        ),
        Limit(
            name="Bytes of a request",
            bounds=("socket.request.max.bytes",),
            metrics=("rotunda_processor_connections_closed_total",),
            beyond="the connection is closed",
            end="with the response",
        ),
        Limit(
            name="Elements of the arrays of a request together; parts of a Produce; bytes of a Fetch, whose parts are "
            "twice max.partitions at most",
            bounds=(
                "rotunda.broker.protocol.primitives:MOST_ELEMENTS",
                "rotunda.broker.protocol.messages.produce:MOST_PARTS",
                "rotunda.broker.protocol.messages.fetch:MOST_BYTES",
            ),
            metrics=("rotunda_processor_connections_closed_total",),
            beyond="INVALID_REQUEST if the response has an error code of its own, else the connection is closed",
            end="with the response",
        ),
        Limit(
            name="A push of client metrics, compressed; times that uncompressed; metrics of an instance, and of all of "
            "a handler; its instances",
            bounds=(
                "telemetry.max.bytes",
                "rotunda.broker.telemetry.receiver:MOST_EXPANSION",
                "rotunda.broker.telemetry.series:MOST_SERIES",
                "rotunda.broker.telemetry.receiver:MOST_SERIES_OF_ALL",
                "rotunda.broker.telemetry.instances:MOST_INSTANCES",
            ),
            metrics=("rotunda_handler_client_metrics_rejected_total", "rotunda_handler_client_instances"),
            beyond="TELEMETRY_TOO_LARGE, INVALID_RECORD; values and instances without a request for the longest time "
            "are dropped",
            end="after three push intervals without a request, or with the connection",
        ),
        Limit(
            name="Uncompressed bytes of a compressed batch; its pieces",
            bounds=("message.max.uncompressed.bytes", "rotunda.broker.records.compression:MOST_PIECES"),
            metrics=("rotunda_request_errors_total",),
            beyond="MESSAGE_TOO_LARGE, CORRUPT_MESSAGE; compaction leaves the batch as it is",
            end="with the response",
        ),
        Limit(
            name="Time in ns in which long parts of one Produce are started; parts under way; "
            "long batches that a handler validates at a time",
            bounds=(
                "rotunda.broker.partitions.produce.produces:LONGEST_NS",
                "rotunda.broker.partitions.produce.produces:MOST_UNDER_WAY",
                "rotunda.broker.partitions.produce.sliced_validation:MOST_VALIDATED",
            ),
            metrics=("rotunda_request_errors_total", "rotunda_handler_slow_turns_total"),
            beyond="REQUEST_TIMED_OUT for the remaining parts: clients retry",
            end="with the response",
        ),
        Limit(
            name="Records, and their bytes, read to find the invalid ones of a rejected Produce",
            bounds=(
                "rotunda.broker.partitions.produce.record_errors:MOST_RECORDS",
                "rotunda.broker.partitions.produce.record_errors:MOST_BYTES",
            ),
            metrics=("rotunda_request_errors_total",),
            beyond="later ones are not named",
            end="with the response",
        ),
        Limit(
            name="Records, and their bytes, read to find one by its time",
            bounds=(
                "rotunda.broker.log.timestamp_search:MOST_RECORDS",
                "rotunda.broker.log.timestamp_search:MOST_BYTES",
            ),
            metrics=("rotunda_requests_total",),
            beyond="the result is the first unread record",
            end="with the response",
        ),
        Limit(
            name="Bytes of requests in reception or service",
            bounds=("queued.max.request.bytes",),
            metrics=("rotunda_processor_arena_used_bytes", "rotunda_processor_arena_depleted_seconds_total"),
            beyond="large requests are not read until there is room",
            end="the target releases the request; meanwhile clients too slow to deliver within a minute are closed",
        ),
        Limit(
            name="Bytes of responses that wait for the client or for an earlier response",
            bounds=("output.max.bytes",),
            metrics=("rotunda_processor_answers_unwritten_bytes", "rotunda_processor_mutes_total"),
            beyond="reading the connection pauses until they are sent",
            end="it reads, or its connection ends",
        ),
        Limit(
            name="Delayed responses to clients that fail repeatedly, of each processor; bytes of such a response",
            bounds=(
                "rotunda.broker.network.processor.throttling.delayed_responses:MOST",
                "rotunda.broker.network.processor.throttling.retry_storms:MOST_BYTES",
            ),
            metrics=("rotunda_processor_answers_held_back", "rotunda_processor_answers_delayed_total"),
            beyond="further ones are sent at once",
            end="automq.retry.storm.backoff.max.delay.ms, or their connection ends",
        ),
        Limit(
            name="Recent failures, of each processor",
            bounds=("rotunda.broker.network.processor.throttling.retry_storms:MOST_REMEMBERED",),
            metrics=("rotunda_processor_answers_delayed_total",),
            beyond="the oldest is dropped",
            end="a second without a failure",
        ),
        Limit(
            name="Bytes of a response",
            bounds=("response.max.bytes",),
            metrics=("rotunda_request_errors_total",),
            beyond="POLICY_VIOLATION, or a part of it where the API has parts",
            end="with the response",
        ),
        Limit(
            name="Requests served in slices or waiting for it, of each target; bytes of the large ones",
            bounds=(
                "rotunda.broker.scheduling.slices:MOST_WAITING",
                "rotunda.broker.scheduling.slices:MOST_WAITING_BYTES",
            ),
            metrics=("rotunda_handler_works_waiting",),
            beyond="the connection is closed",
            end="with the response",
        ),
        Limit(
            name="Parked fetches, and the partitions that they watch, of each handler",
            bounds=(
                "rotunda.broker.scheduling.purgatory:MOST_OPERATIONS",
                "rotunda.broker.scheduling.purgatory:MOST_WATCHED_ROWS",
            ),
            metrics=(
                "rotunda_handler_operations_waiting",
                "rotunda_handler_rows_watched",
                "rotunda_handler_fetches_not_parked_total",
            ),
            beyond="an empty response at once",
            end="fetch.max.wait.ms, which counts up to five minutes",
        ),
        Limit(
            name="Fetch sessions, all handlers together, and partitions in those of each handler",
            bounds=(
                "max.incremental.fetch.session.cache.slots",
                "rotunda.broker.partitions.fetch.fetch_sessions:MOST_PARTITIONS",
            ),
            metrics=(
                "rotunda_handler_fetch_sessions",
                "rotunda_handler_fetch_session_partitions",
                "rotunda_handler_fetch_sessions_evicted_total",
            ),
            beyond="no session begins: the client names all its partitions in every fetch",
            end="two minutes after its last use it may be evicted",
        ),
        Limit(
            name="Stored bytes of a client id, and characters of a name, of a connection",
            bounds=(
                "rotunda.broker.network.accounting.client_registry:MOST_CLIENT_ID_BYTES",
                "rotunda.broker.network.accounting.client_registry:MOST_CHARACTERS",
            ),
            metrics=("rotunda_client_connections",),
            beyond="the rest is cut; an invalid software name is not stored",
            end="with the connection",
        ),
        Limit(
            name="Ended connections with requests under way, of each processor",
            bounds=("rotunda.broker.network.accounting.client_registry:MOST_DEPARTED",),
            metrics=("rotunda_processor_connections_closed_total",),
            beyond="the oldest are dropped: their rows of the request log lack the names",
            end="with the responses",
        ),
    ),
)

_GROUPS = Area(
    title="Groups, transactions and producers",
    limits=(
        Limit(
            name="Memory of groups: members, subscriptions, committed offsets, records in flight of share groups",
            bounds=("group.state.max.bytes",),
            metrics=("rotunda_handler_group_state_bytes", "rotunda_handler_group_state_refusals_total"),
            beyond="GROUP_MAX_SIZE_REACHED for a member, INVALID_COMMIT_OFFSET_SIZE for an offset; "
            "no further record is acquired",
            end="a member's session.timeout.ms; offsets.retention.minutes; a group's last member and offset",
        ),
        Limit(
            name="Members of a group",
            bounds=("group.max.size", "group.consumer.max.size"),
            metrics=("rotunda_group_members",),
            beyond="GROUP_MAX_SIZE_REACHED",
            end="session.timeout.ms",
        ),
        Limit(
            name="Protocols of a member of a classic group; topics, and half of the partitions, of a consumer; "
            "partitions of a share session",
            bounds=(
                "rotunda.broker.apis.groups.join_group:MOST_PROTOCOLS",
                "max.partitions",
                "rotunda.broker.coordinator.share_state.share_consumers:MOST_PARTITIONS",
            ),
            metrics=("rotunda_request_errors_total",),
            beyond="INVALID_REQUEST",
            end="with the response",
        ),
        Limit(
            name="Member ids of a group not yet used to join",
            bounds=("rotunda.broker.coordinator.classic.protocol:MOST_PENDING_MEMBERS",),
            metrics=("rotunda_handler_group_state_bytes",),
            beyond="the oldest is dropped: its client gets another",
            end="session.timeout.ms",
        ),
        Limit(
            name="Instructions of a compiled RE2 pattern; those times the bytes of a name, for each name",
            bounds=(
                "rotunda.broker.metadata.topics.topic_regex:MOST_INSTRUCTIONS",
                "rotunda.broker.metadata.topics.topic_regex:MOST_COST",
            ),
            metrics=("rotunda_request_errors_total",),
            beyond="INVALID_REGULAR_EXPRESSION",
            end="with the response",
        ),
        Limit(
            name="Text of a committed offset",
            bounds=("offset.metadata.max.bytes",),
            metrics=("rotunda_request_errors_total",),
            beyond="OFFSET_METADATA_TOO_LARGE",
            end="with the offset",
        ),
        Limit(
            name="Share sessions, all handlers together; each has an equal share, or a group's",
            bounds=("group.share.max.share.sessions",),
            metrics=("rotunda_handler_share_sessions",),
            beyond="SHARE_SESSION_LIMIT_REACHED, after the wait of the fetch",
            end="with its connection",
        ),
        Limit(
            name="Records in flight of a share group in a partition; one handler serves all partitions of a group",
            bounds=("group.share.partition.max.record.locks",),
            metrics=("rotunda_handler_share_records_in_flight",),
            beyond="no further record is acquired",
            end="with the acknowledgements, or share.record.lock.duration.ms",
        ),
        Limit(
            name="Transactional ids",
            bounds=("transaction.state.max.bytes",),
            metrics=("rotunda_handler_transaction_state_bytes", "rotunda_handler_transaction_state_refusals_total"),
            beyond="POLICY_VIOLATION for a new one",
            end="transactional.id.expiration.ms",
        ),
        Limit(
            name="Duration of a transaction; an id has one",
            bounds=("transaction.max.timeout.ms",),
            metrics=("rotunda_transactions", "rotunda_transaction_oldest_age_seconds"),
            beyond="INVALID_TRANSACTION_TIMEOUT",
            end="it is aborted at its timeout",
        ),
        Limit(
            name="Producer ids of a partition",
            bounds=("rotunda.broker.log.producers.producer_state:MOST_PRODUCERS", "producer.id.expiration.ms"),
            metrics=("rotunda_handler_producer_ids",),
            beyond="the longest silent ones are dropped, and may start with any sequence number",
            end="producer.id.expiration.ms",
        ),
        Limit(
            name="Verified partitions of transactions, of each handler",
            bounds=("rotunda.broker.partitions.produce.verification:MOST_GUARDS",),
            metrics=("rotunda_transactions",),
            beyond="the oldest is verified again",
            end="with the transaction",
        ),
        Limit(
            name="Cached requests, of each handler and API; bytes of each; bytes of a cached response",
            bounds=(
                "rotunda.broker.partitions.request_cache:MOST_CACHE_BYTES",
                "rotunda.broker.partitions.request_cache:MOST_REQUEST_BYTES",
                "rotunda.broker.handler.api_calls:MOST_RESPONSE_BYTES",
            ),
            metrics=("rotunda_handler_requests_handled_total",),
            beyond="the least recently used is dropped, a longer one is not cached: the next request is decoded",
            end="half a minute without use, or a metadata change",
        ),
    ),
)

_RECORDS = Area(
    title="The request log and metrics",
    limits=(
        Limit(
            name="Names of clients in unwritten rows",
            bounds=("rotunda.broker.request_log.names:MOST_NAMES_BYTES",),
            metrics=("rotunda_request_log_rows_total",),
            beyond="waiting rows are written, and the names dropped",
            end="their rows are written",
        ),
        Limit(
            name="Partitions of deleted topics in unwritten rows",
            bounds=("rotunda.broker.request_log.names:MOST_ENDED_SUBJECTS",),
            metrics=("rotunda_request_log_rows_total",),
            beyond="as for names of clients",
            end="their rows are written",
        ),
        Limit(
            name="Connections with listed requests; APIs and versions of each",
            bounds=(
                "rotunda.broker.request_log.recent:MOST_CONNECTIONS",
                "rotunda.broker.request_log.recent:MOST_CALLS",
            ),
            metrics=("rotunda_processor_connections",),
            beyond="the least recently active, or the rarest version, is dropped",
            end="with the connection",
        ),
        Limit(
            name="Rows of requests",
            bounds=("request.log.rows.per.second", "request.log.retention.bytes", "request.log.retention.ms"),
            metrics=("rotunda_request_log_rows_total", "rotunda_request_log_dropped_total"),
            beyond="a row represents several requests, except failed and slow ones; a full ring drops and counts",
            end="the oldest files are removed",
        ),
        Limit(
            name="Names of client software that a processor's metrics distinguish",
            bounds=("rotunda.shm.metrics.metric_tables:TEXT_SLOTS",),
            metrics=("rotunda_client_connections", "rotunda_deprecated_requests_total"),
            beyond='counted under "other"',
            end="the last connection of that name ends",
        ),
        Limit(
            name="Groups that the status page and /metrics list one by one, of each handler",
            bounds=(
                "rotunda.broker.coordinator.group_status_publisher:MOST_MEMBERS",
                "rotunda.broker.coordinator.group_status_publisher:MOST_OFFSETS",
            ),
            metrics=("rotunda_groups_left_out",),
            beyond="counted and left out",
            end="with the group",
        ),
    ),
)

_PAGE = Area(
    title="The status page",
    limits=(
        Limit(
            name="Connections",
            bounds=("status.max.connections",),
            metrics=("rotunda_web_connections", "rotunda_web_connections_dropped_total"),
            beyond="the longest waiting one is closed; probes and /metrics are served",
            end="status.request.timeout.ms for a request, three times that without one",
        ),
        Limit(
            name="Streams of events",
            bounds=("status.max.streams",),
            metrics=("rotunda_web_streams", "rotunda_web_streams_refused_total"),
            beyond="503 with Retry-After; the screen polls instead",
            end="the browser disconnects, or does not read for status.request.timeout.ms",
        ),
        Limit(
            name="Bytes of responses that clients do not read",
            bounds=("rotunda.web.http.room:MOST_UNREAD_BYTES",),
            metrics=("rotunda_web_connections_dropped_total",),
            beyond="the slowest are dropped",
            end="status.request.timeout.ms without 64 KiB being read",
        ),
    ),
)

LIMITS: tuple[Area, ...] = (CONNECTIONS, _REQUESTS, _GROUPS, METADATA, _RECORDS, _PAGE)
