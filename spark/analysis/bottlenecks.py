"""The rules of a diagnosis: which features of a window indicate which bottleneck, the certainty, and the remedy.

Pure. The table is read from the top. Causes precede their effects, so the first matching rule is the verdict, and the
other matching rules are listed with it. A rule matches when all of `holds` are true. Features from the dataset roles
may be missing: such a condition counts as true unless it is known to be false, and then fewer `supports` agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from string import Formatter

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

HEALTHY = "healthy"

#: Least requests in a window for meaningful shares.
LEAST_ROWS = 10
#: Thresholds of notable waits, in microseconds: the mean, and single ones.
WAIT_US = 5_000
SLOW_SEND_US = 20_000
STALL_US = 500_000
#: Age of unread records at which a group is behind, as in the alert for it; share of throttled requests.
LATE_US = 300_000_000
THROTTLED_OF_REQUESTS = 0.05
#: Busy shares: a loop at `FULL` or above is saturated, one up to `FREE` has spare capacity.
FULL, FREE = 0.8, 0.6
#: Mutes per request that are more than rare accidents; connections, per request and per second, that are a habit.
MUTES_IN_A_REQUEST = 0.01
OPENED_IN_A_REQUEST = 0.2
OPENED_IN_A_SECOND = 5


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of bottleneck. All expressions are SQL over the features of a window.

    `evidence` is a template with features as {name:form}; `setting` and `direction` name the change of a setting,
    `advice` has the explanation.
    """

    name: str
    bottleneck: str
    holds: tuple[str, ...]
    supports: tuple[str, ...]
    evidence: str
    setting: str
    direction: str
    advice: str


_ENOUGH = f"rows >= {LEAST_ROWS}"
_QUEUES = f"queueShare >= 0.5 and queueMeanUs >= {WAIT_US}"
#: A burst of connections at a program's start is not a rate: count at least ten seconds.
_CONNECTION_SECONDS = "greatest(connectionSpanUs / 1000000, 10)"
#: Whether writes to the log explain the time that requests spend in their handler; null if unknown.
_LOG = (
    f"(slowHandlerCommitShare >= 0.4 or coalesce(slowHandlerCommitMeanUs, 0) >= {WAIT_US} "
    "and slowHandlerCommitMeanUs >= 0.5 * produceLocalMeanUs)"
)
_NO_LOG = f"not coalesce({_LOG}, false)"
RULES = (
    Rule(
        "full disk",
        "disk",
        ("storageErrors > 0", "storageErrors >= 0.01 * requests"),
        ("storageErrors >= 0.05 * requests",),
        "{storageErrors:count} of {requests:count request} failed with KAFKA_STORAGE_ERROR",
        "retention.ms, retention.bytes",
        "lower",
        "The disk is full or broken: the broker's log and /readyz name the reason. A shorter retention or the deletion "
        "of topics frees space.",
    ),
    Rule(
        "slow log",
        "log",
        (
            _ENOUGH,
            f"produceLocalMeanUs >= {WAIT_US}",
            "queueShare + localShare >= 0.5",
            # Without roles: only appending is slow, not the handler's other requests.
            f"coalesce({_LOG}, "
            "localShare >= 0.5 and "
            "produceLocalMeanUs >= 10 * coalesce(greatest(fetchLocalMeanUs, otherLocalMeanUs), 0))",
        ),
        (
            "slowHandlerCommitShare >= 0.4",
            "slowHandlerActive < 0.5",
            "slowHandlerCommitMeanUs >= 0.5 * produceLocalMeanUs",
        ),
        "writes to the log take {slowHandlerCommitMeanUs:ms} each and {slowHandlerCommitShare:share} of handler "
        "{slowHandler}; a Produce is {produceLocalMeanUs:ms} in its handler",
        "log.flush.interval.messages, flush.messages",
        "raise",
        "Flush less often, put log.dirs on a faster disk, and use larger producer batches (linger.ms, batch.size): "
        "batches that arrive together are one write.",
    ),
    Rule(
        "stalled handler",
        "handler",
        (
            _ENOUGH,
            "queueShare >= 0.5",
            f"slowHandlerQueueMaxUs >= {STALL_US}",
            _NO_LOG,
            "coalesce(slowHandlerActive < 0.5, queueP95Us < queueMaxUs / 10)",
        ),
        ("slowHandlerActive < 0.5", "queueP95Us < queueMaxUs / 10", "slowHandlerQueueUs >= 0.8 * queueUs"),
        "a request waited {slowHandlerQueueMaxUs:ms} for handler {slowHandler}, which worked "
        "{slowHandlerActive:share} of the time",
        "process.hang.timeout.ms",
        "lower",
        "The process stood still: stopped by a signal or a debugger, or held up by the kernel or the machine. "
        "`rotunda status` and the broker's log name it; a lower timeout replaces it sooner.",
    ),
    Rule(
        "hot partition",
        "handler",
        (
            _ENOUGH,
            _QUEUES,
            _NO_LOG,
            "hotPartitionShare >= 0.5",
            f"coalesce(slowHandlerBusy >= {FULL} and handlerBusyOthers <= {FREE}, slowHandlerQueueUs >= 0.8 * queueUs)",
        ),
        (f"slowHandlerBusy >= {FULL}", f"handlerBusyOthers <= {FREE}", "slowHandlerQueueUs >= 0.8 * queueUs"),
        "partition {hotTopic:name}-{hotPartition} has {hotPartitionShare:share} of the time at handler "
        "{slowHandler}, which is busy {slowHandlerBusy:share}, the others {handlerBusyOthers:share}; requests wait "
        "{queueMeanUs:ms}",
        "num.partitions (and --alter --partitions of the topic)",
        "raise",
        "One partition is one handler's: spread its records over more partitions, by more keys or none. More "
        "handlers do not help. Producers that send larger batches, and compression.type=producer, cost its owner "
        "less.",
    ),
    Rule(
        "full ring",
        "request queue",
        (
            _ENOUGH,
            f"mutesRingFull > {MUTES_IN_A_REQUEST} * requests",
            f"coalesce(handlerBusyMax <= {FREE}, true)",
        ),
        ("requestRingPeak >= 0.5", f"handlerBusyMax <= {FREE}", "mutesRingFull > 0.1 * requests"),
        # The counter is exact; the sampled peak misses every burst shorter than the sampling interval.
        "a full ring stopped reading {mutesRingFull:count time} (sampled up to "
        "{requestRingPeak:share} full); the busiest handler is busy {handlerBusyMax:share}",
        "request.ring.bytes",
        "raise",
        "Requests arrive in bursts larger than the request ring; the handlers have spare capacity.",
    ),
    Rule(
        "full arena",
        "request queue",
        (_ENOUGH, f"arenaDepletedShare >= 0.05 or mutesArena > {MUTES_IN_A_REQUEST} * requests"),
        ("arenaDepletedShare >= 0.05", f"mutesArena > {MUTES_IN_A_REQUEST} * requests"),
        "large requests waited for memory {arenaDepletedShare:share} of the time; {mutesArena:count time} a "
        "connection was not read for that",
        "queued.max.request.bytes",
        "raise",
        "Requests of more than 64 KiB share this memory; /dev/shm must have room for it. Smaller batches need less.",
    ),
    Rule(
        "connections wait",
        "connection set-up",
        ("blockedShare >= 0.05",),
        ("blockedShare >= 0.2", "opened > 0"),
        "a listener accepted nothing for {blockedShare:share} of the time",
        "max.connections",
        "raise",
        "The limit on open connections is reached. Fewer are needed if clients reuse them, or with a lower "
        "connections.max.idle.ms.",
    ),
    Rule(
        "connections refused",
        "connection set-up",
        ("connectionsRefused > 0", "connectionsRefused >= 0.05 * (opened + connectionsRefused)"),
        ("connectionsRefused >= 0.2 * (opened + connectionsRefused)", "connectionsRefused >= 10"),
        "{connectionsRefused:count connection} rejected, {opened:count} opened",
        "max.connections.per.ip",
        "raise",
        "An address has as many connections as it may have: let its clients share or close some, or raise its limit "
        "(max.connections.per.ip.overrides for one address alone).",
    ),
    Rule(
        "connection storm",
        "connection set-up",
        (
            f"opened >= {OPENED_IN_A_SECOND} * {_CONNECTION_SECONDS}",
            f"opened >= {OPENED_IN_A_REQUEST} * requests",
            "shortLived >= 0.5 * opened",
        ),
        ("shortLived >= 0.8 * opened", f"opened >= 20 * {_CONNECTION_SECONDS}", "opened >= 0.5 * requests"),
        "{opened:count connection} opened for {requests:count request}, {shortLived:count} closed within 5 s",
        "of the clients: one producer or consumer for many calls; reconnect.backoff.ms",
        "raise",
        "Clients open a connection for every few requests. Make them reuse it; the report `clients` names them.",
    ),
    Rule(
        "few processors",
        "network",
        (
            _ENOUGH,
            f"coalesce(processorBusyMax >= {FULL} and handlerBusyMax <= processorBusyMax - 0.15, "
            f"responseQueueShare >= 0.5 and responseQueueMeanUs >= {WAIT_US})",
        ),
        (f"processorBusyMax >= {FULL}", "responseQueueShare + coalesce(queueShare, 0) >= 0.5", "runQueueMax < 0.4"),
        "the busiest processor is busy {processorBusyMax:share}, the busiest handler {handlerBusyMax:share}; "
        "responses wait {responseQueueMeanUs:ms} for their processor",
        "num.network.threads",
        "raise",
        "Processors have more to do than they can while handlers have time. Fewer and larger requests help as well "
        "(linger.ms, batch.size, fetch.min.bytes). Without free CPUs more processors do not.",
    ),
    Rule(
        "no cpu",
        "cpu",
        (
            _ENOUGH,
            "runQueueMax >= 0.3",
            f"queueMeanUs + responseQueueMeanUs >= {WAIT_US}",
            "queueShare + responseQueueShare >= 0.5",
        ),
        ("cpuUse >= 0.8", "runQueueMax >= 0.5", "handlerBusyMax >= 0.6 or processorBusyMax >= 0.6"),
        "a process was ready and had no CPU {runQueueMax:share} of the time; the broker uses {cpuUse:share} of "
        "its {cpus} CPUs",
        "num.io.threads, num.network.threads",
        "lower to the number of CPUs",
        "There is more work than CPUs: add CPUs, or move other processes away.",
    ),
    Rule(
        "few handlers",
        "handler",
        (_ENOUGH, _QUEUES, _NO_LOG, "coalesce(handlerBusyMax >= 0.8, true)"),
        ("handlerBusyMax >= 0.8", f"handlerBusyOthers > {FREE} or handlers = 1", "cpuUse < 0.8"),
        "requests wait {queueMeanUs:ms} for a handler ({queueShare:share} of their time in the broker); the busiest "
        "of {handlers} is busy {handlerBusyMax:share}",
        "num.io.threads",
        "raise",
        "The handlers are overloaded. More handlers help if CPUs are free and the load is spread over enough "
        "partitions; the report `capacity` estimates their number.",
    ),
    Rule(
        "slow reads",
        "log",
        (_ENOUGH, f"fetchLocalMeanUs >= {SLOW_SEND_US}", "fetchLocalUs >= 0.5 * brokerUs"),
        ("slowHandlerActive < 0.5", "fetchLocalMeanUs >= 5 * coalesce(produceLocalMeanUs, 0)"),
        "a Fetch is {fetchLocalMeanUs:ms} in its handler",
        "of the clients: max.partition.fetch.bytes, fetch.max.bytes",
        "lower",
        "Fetched records are not in the page cache: add memory, use a faster disk, or reduce the lag of consumers.",
    ),
    Rule(
        "slow client",
        "client",
        (
            _ENOUGH,
            "sendShare >= 0.5",
            f"slowClientSendMeanUs >= {SLOW_SEND_US}",
            f"coalesce(processorBusyMax < {FULL}, true)",
        ),
        ("mutesOutput > 0", f"processorBusyMax < {FREE}", "slowClientSendShare >= 0.8"),
        "sending a response to client {slowClient:name} takes {slowClientSendMeanUs:ms}, {slowClientSendShare:share} "
        "of all sending; the busiest processor is busy {processorBusyMax:share}",
        "of the clients: fetch.max.bytes, max.partition.fetch.bytes",
        "lower",
        "The client, or the network to it, reads more slowly than the broker sends: let it fetch less at a time and "
        "work in another thread; over a general path raise its receive.buffer.bytes and socket.send.buffer.bytes.",
    ),
    Rule(
        "throttled clients",
        "quota",
        (f"throttledRequests >= {THROTTLED_OF_REQUESTS} * requests",),
        ("throttledRequests >= 0.2 * requests", f"throttleMaxUs >= {STALL_US}"),
        "throttled: {throttledRequests:count} of {requests:count response}, those of client "
        "{throttledClient:name} up to {throttleMaxUs:ms}",
        "quotas: producer_byte_rate, consumer_byte_rate, request_percentage",
        "raise",
        "Clients use more than their quotas: `rotunda quota list` has both, the report `quotas` their history.",
    ),
    Rule(
        "expired members",
        "consumer",
        ("expiredMembers > 0",),
        ("expiredMembers >= 3",),
        "group {expiredGroup:name} removed {expiredMembers:count member} after their session timeout",
        "of the consumers: session.timeout.ms; of a group: share.session.timeout.ms",
        "raise",
        "The members died, or were silent for too long: their hosts' pauses and networks come before a longer timeout. "
        "The report `groups` lists each expiration. Records of a share group come again to others.",
    ),
    Rule(
        "consumer lag",
        "consumer",
        (f"lagAgeUs >= {LATE_US}",),
        (f"lagAgeUs >= {3 * LATE_US}", "lagRecords >= 1000"),
        "group {lagGroup:name} is {lagRecords:count record} behind, the oldest {lagAgeUs:s} old",
        "of the consumers: their number, max.poll.records",
        "raise",
        "Its consumers are slower than its producers, or stopped: `rotunda group describe` has their partitions, the "
        "report `groups` when it fell behind. More members help up to the number of partitions.",
    ),
)  # fmt: skip


_HEALTHY_EVIDENCE = (
    "requests wait {queueMeanUs:ms} for a handler and {responseQueueMeanUs:ms} for a processor; handlers are busy "
    "up to {handlerBusyMax:share}, processors {processorBusyMax:share}"
)


def verdicts(features: DataFrame) -> DataFrame:
    """Return the bottleneck of each window, or `healthy`, with evidence, certainty (0 to 1) and advice, in order."""
    holding = [F.when(_holds(rule), F.struct(*_fields(place, rule))) for place, rule in enumerate(RULES)]
    judged = features.withColumn("_found", F.filter(F.array(*holding), lambda each: each.isNotNull()))
    first, any_found = F.get("_found", F.lit(0)), F.size("_found") > 0
    also = F.array_join(F.transform(F.slice("_found", 2, len(RULES)), lambda each: each["name"]), ", ")
    healthy = {"bottleneck": F.lit(HEALTHY), "evidence": _text(_HEALTHY_EVIDENCE), "certainty": _healthy_certainty()}
    return judged.select(
        "window",
        "requests",
        F.when(any_found, first["bottleneck"]).otherwise(healthy["bottleneck"]).alias("bottleneck"),
        first["name"].alias("rule"),
        F.round(F.when(any_found, first["certainty"]).otherwise(healthy["certainty"]), 2).alias("certainty"),
        F.when(any_found, first["evidence"]).otherwise(healthy["evidence"]).alias("evidence"),
        first["setting"].alias("setting"),
        first["direction"].alias("direction"),
        first["advice"].alias("advice"),
        F.when(also != "", also).alias("also"),
    ).orderBy("window")


def _holds(rule: Rule) -> Column:
    return reduce(lambda one, other: one & other, (F.coalesce(F.expr(each), F.lit(False)) for each in rule.holds))


def _fields(place: int, rule: Rule) -> list[Column]:
    return [
        F.lit(place).alias("place"),
        F.lit(rule.name).alias("name"),
        F.lit(rule.bottleneck).alias("bottleneck"),
        _certainty(rule.supports).alias("certainty"),
        _text(rule.evidence).alias("evidence"),
        F.lit(rule.setting).alias("setting"),
        F.lit(rule.direction).alias("direction"),
        F.lit(rule.advice).alias("advice"),
    ]


def _certainty(supports: tuple[str, ...]) -> Column:
    """Return the share of agreeing evidence, reduced for sampling, few rows and gaps.

    Unknown features do not agree. A share measured over n rows has a relative error of about 1/√n.
    """
    agreeing = [F.coalesce(F.expr(each), F.lit(False)).cast("double") for each in supports]
    agreement = (1 + reduce(lambda one, other: one + other, agreeing)) / (1 + len(supports))
    return agreement * _complete() * _numerous()


def _healthy_certainty() -> Column:
    known = F.when(F.col("handlerBusyMax").isNotNull() & F.col("processorBusyMax").isNotNull(), 1.0).otherwise(0.5)
    return known * _complete() * _numerous()


def _complete() -> Column:
    known = F.col("rows") / F.greatest(F.col("rows") + F.col("lostRows"), F.lit(1))
    return F.when((F.col("gapRows") > 0) & (F.col("lostRows") == 0), 0.8).otherwise(F.greatest(known, F.lit(0.0)))


def _numerous() -> Column:
    return 1 - 1 / F.sqrt(F.greatest(F.col("rows"), F.col("opened"), F.lit(1)) + 1)


def _text(template: str) -> Column:
    """Return a template filled in; unknown features become `unknown`. A noun after a form is in its number."""
    parts = []
    for literal, name, form, _ in Formatter().parse(template):
        parts.append(F.lit(literal))
        if name is not None:
            shape, _, noun = (form or "").partition(" ")
            parts.append(F.coalesce(_FORMS[shape](F.col(name)), F.lit("unknown")))
            parts += [F.when(F.col(name) == 1, f" {noun}").otherwise(f" {noun}s")] if noun else []
    return F.concat(*parts)


_FORMS: dict[str, Callable[[Column], Column]] = {
    "": lambda value: value.cast("string"),
    "count": lambda value: F.format_number(value, 0),
    "ms": lambda value: F.concat(F.format_number(value / 1000, 1), F.lit(" ms")),
    "s": lambda value: F.concat(F.format_number(value / 1_000_000, 0), F.lit(" s")),
    "share": lambda value: F.concat(F.format_number(100 * value, 0), F.lit(" %")),
    # Names of clients and topics may contain any characters.
    "name": lambda value: F.substring(F.regexp_replace(value, r"[^\x20-\x7e]", "?"), 1, 40),
}
