"""The metrics of processors about slowed-down clients: by throttle times, and by delayed responses.

Declarations only; `shm.metrics.catalogue` joins them with the others.
"""

from __future__ import annotations

from rotunda.shm.metrics.metric import COUNTER, GAUGE, Metric
from rotunda.shm.recorder_layout import THROTTLED_BY

THROTTLE_METRICS = (
    Metric(
        "connections_throttled",
        GAUGE,
        "connections",
        "Connections muted by a quota.",
        "Kafka's queue-size, of all types of quotas together. Row `E17`.",
    ),
    Metric(
        "quota_throttled",
        COUNTER,
        "responses",
        "Responses with a throttle time, by quota.",
        "Of several exceeded quotas, the one with the longest throttle time. Row `E17`.",
        "quota",
        THROTTLED_BY,
        exposed="quota_throttled_total",
    ),
    Metric(
        "quota_throttle_ns",
        COUNTER,
        "ns",
        "Sum of those throttle times.",
        "Divided by their number it is Kafka's throttle-time of a quota. Row `E17`.",
        "quota",
        THROTTLED_BY,
        exposed="quota_throttle_seconds_total",
    ),
    Metric(
        "answers_delayed",
        COUNTER,
        "responses",
        "Responses delayed by the retry storm backoff or by a test.",
        "See automq.retry.storm.backoff.enabled. The log names some clients; the request log has throttledBy. Row "
        "`D22`.",
    ),
    Metric(
        "answers_held_back",
        GAUGE,
        "responses",
        "Responses delayed now.",
        "After repeated failures, or by a test. Row `D22`.",
    ),
)
