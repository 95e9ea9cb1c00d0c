"""The part of the map of shared memory in which processes store clients' quota usage.

Declarations only, as in `shm.layout`, which prints them with its own. Owners are the targets and, after them, the
processors; each writes a table of its own.
"""

from __future__ import annotations

from rotunda.shm.record import Field, Record

QUOTA_TABLE = Record(
    "QUOTA_TABLE",
    "Header of the table of an owner, a target or a processor, followed by QUOTA_SLOTs with their QUOTA_SAMPLEs.",
    64,
    (
        Field("changes", "q", "count", "owner", "raised after a slot was reassigned to another entity"),
        Field("windows", "q", "count", "supervisor", "quota.window.num; only in the first table"),
        Field("window_ms", "q", "ms", "supervisor", "quota.window.size.seconds; only in the first table"),
    ),
)

QUOTA_SLOT = Record(
    "QUOTA_SLOT",
    "The usage of an entity's quota, as served by this owner.",
    192,
    (
        Field("entity", "q", "hash", "owner", "of the quota and its entity; stored last; 0: the slot is free"),
        Field("used_ms", "q", "ms", "owner", "monotonic time of the last recorded usage"),
        Field("quota", "q", "index", "owner", "index in rotunda.shm.tables.quota_tables.QUOTAS"),
        Field("limit", "q", "1/1000", "owner", "the entity's limit per second, in thousandths"),
        Field("current", "q", "index", "owner", "the current sample"),
        Field("throttled", "q", "count", "owner", "responses with a throttle time for this quota"),
        Field("throttle_ms", "q", "ms", "owner", "sum of those times"),
        Field("throttled_until_ms", "q", "ms", "owner", "monotonic end of the last of those times"),
        Field("name_bytes", "q", "bytes", "owner", "length of name"),
        Field("name", "120s", "UTF-8", "owner", "user and client id of the entity, separated by a zero byte"),
    ),
)

QUOTA_SAMPLE = Record(
    "QUOTA_SAMPLE",
    "The usage in one window; a slot has quota.window.num plus 1 of them. Of a token bucket the first one has the "
    "tokens.",
    24,
    (
        Field("start_ms", "q", "ms", "owner", "monotonic start of the window; 0: unused"),
        Field("last_ms", "q", "ms", "owner", "monotonic time of its last recorded usage"),
        Field("used", "q", "-", "owner", "bytes, or ns of a thread; of a token bucket the tokens, in thousandths"),
    ),
)
