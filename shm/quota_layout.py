"""The part of the map of shared memory in which processes store clients' quota usage.

Declarations only, as in `shm.layout`, which prints them with its own. Owners are the targets and, after them, the
processors; each writes a table of its own.
"""

from __future__ import annotations

from rotunda.shm.record import Field, Record

QUOTA_TABLE = Record(
    "QUOTA_TABLE",
    "Heads the table of one owner: a target, or a processor. QUOTA_SLOTs follow, each with its QUOTA_SAMPLEs.",
    64,
    (
        Field("changes", "q", "count", "owner", "raised after a slot was given to another entity"),
        Field("windows", "q", "count", "supervisor", "quota.window.num; in the first table alone"),
        Field("window_ms", "q", "ms", "supervisor", "quota.window.size.seconds; in the first table alone"),
    ),
)

QUOTA_SLOT = Record(
    "QUOTA_SLOT",
    "What an entity has used of one of its quotas, as far as this owner has served it.",
    192,
    (
        Field("entity", "q", "hash", "owner", "of the quota and whom it holds for; stored last; 0: the slot is free"),
        Field("used_ms", "q", "ms", "owner", "monotonic time when something was recorded last"),
        Field("quota", "q", "index", "owner", "which quota: its place in rotunda.shm.tables.quota_tables.QUOTAS"),
        Field("limit", "q", "1/1000", "owner", "what the entity may use in a second, in thousandths"),
        Field("current", "q", "index", "owner", "the sample that is being filled"),
        Field("throttled", "q", "count", "owner", "answers that gave a throttle time for this quota"),
        Field("throttle_ms", "q", "ms", "owner", "those times added up"),
        Field("throttled_until_ms", "q", "ms", "owner", "monotonic time up to which the last of them lasts"),
        Field("name_bytes", "q", "bytes", "owner", "length of name"),
        Field("name", "120s", "UTF-8", "owner", "user and client id that the quota is for, a zero byte between them"),
    ),
)

QUOTA_SAMPLE = Record(
    "QUOTA_SAMPLE",
    "What was used in one window, quota.window.num of them and one in a slot. Of a quota that is a bucket of tokens "
    "the first one has the tokens.",
    24,
    (
        Field("start_ms", "q", "ms", "owner", "monotonic time when the window began; 0: nothing was ever recorded"),
        Field("last_ms", "q", "ms", "owner", "monotonic time when something was recorded in it last"),
        Field("used", "q", "-", "owner", "bytes, or ns of a thread; of a bucket the tokens, in thousandths"),
    ),
)
