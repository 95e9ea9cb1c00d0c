"""The part of the table of limits that is about topics, settings and quotas. No running process reads it."""

from __future__ import annotations

from rotunda.broker.config.limits.rows import Area, Limit

METADATA = Area(
    title="Topics and settings",
    limits=(
        Limit(
            name="Partitions of all topics",
            bounds=("max.partitions",),
            metrics=("rotunda_topic_partitions",),
            beyond="INVALID_PARTITIONS",
            end="their topic is deleted",
        ),
        Limit(
            name="Settings of groups, client metrics subscriptions, quotas, users and ACLs",
            bounds=("rotunda.broker.metadata.store.entity_store:MOST_BYTES",),
            metrics=("rotunda_handler_settings_bytes",),
            beyond="POLICY_VIOLATION",
            end="they are deleted",
        ),
        Limit(
            name="Users and client ids, by quota, with recorded use in a process; client ids with cached quotas, and "
            "bytes of one",
            bounds=(
                "rotunda.shm.tables.quota_tables:SLOTS",
                "rotunda.broker.quotas.quota_manager:MOST_KNOWN",
                "rotunda.broker.quotas.quota_manager:MOST_ID_BYTES",
            ),
            metrics=("rotunda_client_quota_rate", "rotunda_request_throttle_seconds"),
            beyond="the longest idle one restarts at zero; all are looked up again; ids with equal beginnings are one",
            end="replaced by another",
        ),
        Limit(
            name="Users and client ids, by quota, that the status page and /metrics list one by one",
            bounds=("rotunda.broker.metrics.quota_use:MOST_LISTED",),
            metrics=("rotunda_client_quotas_left_out",),
            beyond="counted and left out; throttled ones and those nearest to their limit are listed",
            end="an hour without use, or the quota is deleted",
        ),
        Limit(
            name="Characters of a setting; settings of one resource, or quotas of an entity, that one request changes",
            bounds=(
                "rotunda.broker.metadata.configs.config_changes:MOST_CHARACTERS",
                "rotunda.broker.apis.cluster.controller_access:MOST_CHANGES",
            ),
            metrics=("rotunda_request_errors_total",),
            beyond="INVALID_CONFIG; INVALID_REQUEST",
            end="it is deleted, or its topic is",
        ),
        Limit(
            name="Responses of the controller for repeated requests",
            bounds=("rotunda.broker.metadata.store.request_dedup:MOST_REQUESTS",),
            metrics=("rotunda_handler_requests_handled_total",),
            beyond="the oldest are dropped",
            end="the broker starts",
        ),
    ),
)
