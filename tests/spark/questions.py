"""The questions of each report as DuckDB SQL, which shares no code with the jobs.

Every number of a job is compared with it. Most queries read `r`, the rows of
a dataset in a range with their weight `w`, and `q`, those of its requests (`of_range`); the rest read a whole log.
"""

from collections.abc import Iterable
from pathlib import Path

_PHASES = "requestQueueTimeUs, localTimeUs, remoteTimeUs, responseQueueTimeUs, sendTimeUs, totalTimeUs"
_SUMMED = f"requestBytes, responseBytes, records, recordBytes, throttleTimeUs, {_PHASES}".split(", ")
#: Of `log`: the hourly table `requests`, by columns that are its keys.
ROLLED_UP = f"""
SELECT strftime(time AT TIME ZONE 'UTC', '%Y-%m-%d') AS date, strftime(time AT TIME ZONE 'UTC', '%H')::INT AS hour,
       {{keys}}, sum(sampleWeight)::BIGINT, count(*), sum(CASE WHEN slow THEN sampleWeight ELSE 0 END)::BIGINT,
       {", ".join(f"sum({name} * sampleWeight::BIGINT)::BIGINT" for name in _SUMMED)},
       epoch_us(min(time)), epoch_us(max(time))
FROM {{log}} GROUP BY ALL"""  # noqa: S608
#: Of `log`: the hourly table `latencies`, with the keys in the place of their number.
HISTOGRAMS = f"""
WITH phases AS (UNPIVOT (FROM {{log}}) ON {_PHASES} INTO NAME phase VALUE us),
 n AS (SELECT *, least(greatest(us, 0) * 1000, 137438953471)::BIGINT ns FROM phases),
 b AS (SELECT *, greatest(floor(log2(ns + 0.5))::INT - 5, 0) s FROM n)
SELECT strftime(time AT TIME ZONE 'UTC', '%Y-%m-%d') AS date, strftime(time AT TIME ZONE 'UTC', '%H')::INT AS hour,
       {{keys}}, phase, (s * 32 + (ns >> s))::INT AS bucket, sum(sampleWeight)::BIGINT FROM b GROUP BY ALL"""  # noqa: S608

#: By `by`, with `one` the same for all of them, and by `begin`, the begin of windows of `window` microseconds.
LATENCY = """
, n AS (SELECT *, 1 one, epoch_us(time) // {window} * {window} begin,
        least(greatest(totalTimeUs, 0) * 1000, 137438953471)::BIGINT ns FROM r),
 b AS (SELECT *, greatest(floor(log2(ns + 0.5))::INT - 5, 0) s FROM n),
 c AS (SELECT {by}, s * 32 + (ns >> s) bucket, (((ns >> s) << s) + ((1::BIGINT << s) - 1) // 2) / 1000 middle,
       sum(w) n, sum(w * requestQueueTimeUs) p1, sum(w * localTimeUs) p2, sum(w * remoteTimeUs) p3,
       sum(w * responseQueueTimeUs) p4, sum(w * sendTimeUs) p5, sum(w * totalTimeUs) t FROM b GROUP BY ALL),
 z AS (SELECT *, sum(n) OVER (PARTITION BY {by} ORDER BY bucket) below, sum(n) OVER (PARTITION BY {by}) whole FROM c)
SELECT {by}, any_value(whole), sum(t) / sum(n), min(middle) FILTER (below >= ceil(whole * 0.5)),
       min(middle) FILTER (below >= ceil(whole * 0.95)), min(middle) FILTER (below >= ceil(whole * 0.99)),
       min(middle) FILTER (below >= ceil(whole * 0.999)), sum(p1) / sum(t), sum(p2) / sum(t), sum(p3) / sum(t),
       sum(p4) / sum(t), sum(p5) / sum(t) FROM z GROUP BY {by}
"""

#: By topic, partition or client.
TRAFFIC = """
SELECT {by}, sum(w), sum(w * requestBytes), sum(w * responseBytes),
       coalesce(sum(w * records) FILTER (requestApiKeyName = 'PRODUCE'), 0),
       coalesce(sum(w * records) FILTER (requestApiKeyName = 'FETCH'), 0),
       coalesce(sum(w) FILTER (partitionCount > 1), 0),
       sum(w * (requestBytes + responseBytes)) / (SELECT sum(w * (requestBytes + responseBytes)) FROM r)
FROM r GROUP BY {by}
"""
# The textbook's definition: half the mean difference of any two, over the mean.
SKEW = """
, m AS (SELECT {of} scope, {topic} topic, {member} member, sum(w * (requestBytes + responseBytes))::BIGINT b
        FROM r WHERE {where} GROUP BY ALL),
 d AS (SELECT x.scope, x.topic, sum(abs(x.b - y.b)) d FROM m x JOIN m y
       ON x.scope = y.scope AND x.topic IS NOT DISTINCT FROM y.topic GROUP BY ALL)
SELECT m.scope, m.topic, count(*), sum(b), any_value(d) / (2 * count(*) * sum(b)), arg_max(member, b), max(b) / sum(b)
FROM m JOIN d ON m.scope = d.scope AND m.topic IS NOT DISTINCT FROM d.topic GROUP BY m.scope, m.topic
"""
#: Parameters of `SKEW`: `of`, `topic`, `member` and `where`.
SKEWS = (
    ("'all partitions'", "NULL", "concat_ws('-', topic, partition)", "partition IS NOT NULL"),
    ("'partitions of a topic'", "topic", "concat_ws('-', topic, partition)", "partition IS NOT NULL"),
    ("'clients'", "NULL", "clientId", "true"),
)
BATCHES = """
, p AS (SELECT *, unnest(range(w)) FROM r WHERE requestApiKeyName = 'PRODUCE')
SELECT clientId, codec, count(*), sum(records), sum(recordBytes), avg(records), avg(recordBytes),
       quantile_cont(records, 0.5), quantile_cont(records, 0.95),
       quantile_cont(recordBytes, 0.5), quantile_cont(recordBytes, 0.95) FROM p GROUP BY ALL
"""
SAVINGS = """
, g AS (SELECT clientId, l, sum(w) n, max(w) m, sum(w * recordBytes) b
        FROM r, unnest([{lingers_ms}]) AS lingers(l) WHERE requestApiKeyName = 'PRODUCE'
        GROUP BY clientId, topic, partition, l, epoch_us(time) // (l * 1000)),
 s AS (SELECT *, least(n, m * greatest(ceil(b / m / z), 1)) k FROM g, unnest([{batch_bytes}]) AS sizes(z))
SELECT clientId, l, z, sum(n), sum(k), 1 - sum(k) / sum(n) FROM s GROUP BY clientId, l, z
"""

_KIND = "requestApiKeyName, errorCode, errorName, clientId"
# A run begins with an error that has no other within the gap before it.
_RUNS = f"""
, e AS (SELECT *, coalesce(max(time) OVER (PARTITION BY {_KIND} ORDER BY time RANGE BETWEEN INTERVAL {{gap_s}} SECOND
        PRECEDING AND INTERVAL 1 MICROSECOND PRECEDING) IS NULL, true) begins FROM r WHERE errorCode <> 0),
 n AS (SELECT *, sum(begins::INT) OVER (PARTITION BY {_KIND} ORDER BY time RANGE UNBOUNDED PRECEDING) run FROM e),
 p AS (SELECT {_KIND}, run, max(s) peak FROM (SELECT {_KIND}, run, sum(w) s FROM n
       GROUP BY {_KIND}, run, date_trunc('second', time)) GROUP BY {_KIND}, run),
 u AS (SELECT n.requestApiKeyName, n.errorCode, n.errorName, n.clientId, n.run, sum(w) errors, min(time) first,
       max(time) last, any_value(peak) peak
       FROM n JOIN p ON n.requestApiKeyName = p.requestApiKeyName AND n.errorCode = p.errorCode
       AND n.clientId IS NOT DISTINCT FROM p.clientId AND n.run = p.run GROUP BY ALL)
"""  # noqa: S608
BURSTS = f"""{_RUNS}
SELECT {_KIND}, errors, epoch_us(first), epoch_us(last), (epoch_us(last) - epoch_us(first)) / 1e6, peak
FROM u WHERE errors >= {{least}}"""  # noqa: S608
ERRORS = f"""{_RUNS}
SELECT {_KIND}, sum(errors), sum(errors) / (SELECT sum(w) FROM r WHERE r.clientId IS NOT DISTINCT FROM u.clientId),
       epoch_us(min(first)), epoch_us(max(last)), count(*) FILTER (errors >= {{least}}),
       max(errors) FILTER (errors >= {{least}}),
       max(epoch_us(last) - epoch_us(first)) FILTER (errors >= {{least}}) / 1e6, max(peak) FROM u GROUP BY {_KIND}"""  # noqa: S608

_WHO = "softwareName, softwareVersion, clientId"
SOFTWARE = f"""
SELECT {_WHO}, sum(w), coalesce(sum(w) FILTER (errorCode <> 0), 0), epoch_us(min(time)), epoch_us(max(time))
FROM r GROUP BY {_WHO}"""  # noqa: S608
VERSIONS = f"SELECT requestApiKeyName, requestApiVersion, {_WHO}, sum(w) FROM r GROUP BY ALL"  # noqa: S608
DROPPED = f"""
SELECT requestApiKeyName, requestApiVersion, {_WHO}, sum(w), count(DISTINCT address), epoch_us(max(time))
FROM r WHERE requestApiVersionDeprecated GROUP BY ALL"""  # noqa: S608
#: Of the dataset connections. A closing belongs to the opening that precedes it by the connection's lifetime.
LIVES = """
, o AS (SELECT connection, address, time, (SELECT min(time) FROM r n WHERE n.connection = r.connection
        AND n.time > r.time) next FROM r WHERE event = 'open' AND NOT EXISTS (SELECT 1 FROM r c WHERE c.event = 'close'
        AND c.connection = r.connection AND epoch_us(c.time) - c.durationUs = epoch_us(r.time))),
 u AS (SELECT o.connection, o.address, o.time, o.next, max(clientId) clientId, coalesce(sum(w), 0) requests
       FROM o LEFT JOIN q ON q.connection = o.connection AND q.time >= o.time AND (o.next IS NULL OR q.time < o.next)
       GROUP BY ALL),
 l AS (SELECT clientId, address, epoch_us(time) - durationUs us, 'closed' state, durationUs / 1e6 s, cause, requests
       FROM r WHERE event = 'close' UNION ALL
       SELECT clientId, address, epoch_us(time), if(next IS NULL, 'open', 'lost'),
       if(next IS NULL, epoch_us(TIMESTAMPTZ '{end}+00') - epoch_us(time), NULL) / 1e6, NULL, requests FROM u),
 m AS (SELECT clientId, address, max(n) most FROM
       (SELECT clientId, address, us // 60000000, count(*) n FROM l GROUP BY ALL) GROUP BY ALL),
 k AS (SELECT clientId, address, string_agg(cause || ' ' || n, ', ' ORDER BY n DESC, cause) causes FROM
       (SELECT clientId, address, cause, count(*) n FROM l WHERE cause IS NOT NULL GROUP BY ALL) GROUP BY ALL)
SELECT l.clientId, l.address, count(*), count(*) FILTER (state = 'open'), count(*) FILTER (state = 'lost'),
       count(*) FILTER (s >= {idle_s} AND requests * 60 < {idle_requests} * s),
       count(*) FILTER (state = 'closed' AND s < {short_s}),
       sum(requests), any_value(most), any_value(most) > {looping}, coalesce(any_value(causes), '')
FROM l JOIN m ON m.clientId IS NOT DISTINCT FROM l.clientId AND m.address = l.address
LEFT JOIN k ON k.clientId IS NOT DISTINCT FROM l.clientId AND k.address = l.address GROUP BY l.clientId, l.address
"""

#: The bad requests among those of an objective: in the last seconds of a range, and minute by minute.
OBJECTIVE = """
SELECT coalesce(sum(w), 0), coalesce(sum(w) FILTER ({bad}), 0) FROM r
WHERE {chosen} AND time >= TIMESTAMPTZ '{end}+00' - INTERVAL {seconds} SECOND
"""
OBJECTIVE_BY_MINUTE = """
SELECT epoch_us(TIMESTAMPTZ '{end}+00') - ((epoch_us(TIMESTAMPTZ '{end}+00' - time) - 1) // 60000000 + 1) * 60000000,
       '{name}', sum(w), coalesce(sum(w) FILTER ({bad}), 0), coalesce(sum(w) FILTER ({bad}), 0) / sum(w) / {budget}
FROM r WHERE {chosen} GROUP BY ALL
"""

#: Of the dataset groups.
MEMBERS = """SELECT "group", event, count(*), count(DISTINCT member) FROM r
WHERE event IN ('join', 'leave', 'expire', 'replace') GROUP BY ALL"""

REPLAYED = """SELECT requestApiKeyName, requestApiVersion, sum(w)::BIGINT, sum(requestBytes * w)::BIGINT,
 sum(responseBytes * w)::BIGINT, sum(records * w)::BIGINT, sum(recordBytes * w)::BIGINT FROM r GROUP BY ALL"""

#: Of a whole log: the queues of handlers by windows of `window` microseconds.
QUEUES = """
WITH raw AS (SELECT handler, requestQueueTimeUs q, localTimeUs::DOUBLE l, sampleWeight n, epoch_us(time) us,
  epoch_us(time) // {window} w FROM read_parquet('{log}/requests/**/*.parquet')),
 r AS (SELECT *, us - lag(us) OVER (PARTITION BY w, handler ORDER BY us) gap FROM raw),
 span AS (SELECT w, max(us) - min(us) span FROM r GROUP BY w),
 busy AS (SELECT (epoch_us(time) - intervalUs // 2) // {window} w, index::INT handler,
  sum(greatest((1 - idleShare) * intervalUs, cpuTimeUs + runQueueTimeUs)) / sum(requests) s
  FROM read_parquet('{log}/roles/**/*.parquet')
  WHERE role = 'handler' AND traffic GROUP BY ALL)
SELECT handler, sum(n), sum(n) / any_value(span) * 1e6, any_value(s), greatest(0,
  1 + (var_pop(gap) / avg(gap) ** 2 - 1) / (count(*) / sum(n))),
  sum(n * l * l) * sum(n) / sum(n * l) ** 2 - 1, sum(n * q) / sum(n)
FROM r JOIN span USING (w) JOIN busy USING (w, handler) GROUP BY w, handler HAVING count(*) >= 30 ORDER BY w, handler
"""

#: Of a whole log: the diagnosis's features, by windows of `window_s` seconds.
FEATURES = """
WITH log AS (SELECT *, time_bucket(INTERVAL '{window_s} seconds', time AT TIME ZONE 'UTC') w,
  CASE requestApiKey WHEN 0 THEN remoteTimeUs
                     WHEN 1 THEN coalesce(greatest(remoteTimeUs - maxWaitMs * 1000, 0), 0) ELSE 0 END rest
  FROM read_parquet('{log}/requests/**/*.parquet')),
 total AS (SELECT w, sum(sampleWeight) n, sum(sampleWeight * requestQueueTimeUs) q, sum(sampleWeight * localTimeUs) l,
  sum(sampleWeight * rest) r, sum(sampleWeight * responseQueueTimeUs) a, sum(sampleWeight * sendTimeUs) s,
  sum(sampleWeight * localTimeUs) FILTER (requestApiKey = 0) / sum(sampleWeight) FILTER (requestApiKey = 0) pl
  FROM log GROUP BY w),
 at_handler AS (SELECT w, handler, sum(sampleWeight * (requestQueueTimeUs + localTimeUs)) us FROM log GROUP BY ALL),
 slow AS (SELECT w, arg_max(handler, us) h, max(us) us FROM at_handler GROUP BY w),
 part AS (SELECT w, topic, partition, sum(sampleWeight * (requestQueueTimeUs + localTimeUs)) us
  FROM log JOIN slow USING (w) WHERE handler = h AND topic IS NOT NULL GROUP BY ALL),
 hot AS (SELECT w, max(us) us FROM part GROUP BY w),
 by_client AS (SELECT w, clientId, sum(sampleWeight * sendTimeUs) us FROM log GROUP BY ALL),
 client AS (SELECT w, max(us) us FROM by_client GROUP BY w),
 place AS (SELECT *, time_bucket(INTERVAL '{window_s} seconds',
    (time - to_microseconds(intervalUs // 2)) AT TIME ZONE 'UTC') w
  FROM read_parquet('{log}/roles/**/*.parquet') WHERE traffic),
 process AS (SELECT w, role, index,
  greatest(1 - sum(idleShare * intervalUs) / sum(intervalUs) FILTER (idleShare IS NOT NULL),
           (sum(cpuTimeUs) + sum(runQueueTimeUs)) / sum(intervalUs)) busy,
  sum(cpuTimeUs) / sum(intervalUs) cpu, sum(runQueueTimeUs) / sum(intervalUs) waits,
  sum(commitTimeUs) / sum(intervalUs) commits,
  sum(commitTimeUs) / nullif(sum(commits), 0) write, max(cpus) cpus, sum(mutesRingFull) ring FROM place GROUP BY ALL),
 role AS (SELECT w, max(busy) FILTER (role = 'processor') pb, max(busy) FILTER (role = 'handler') hb,
  sum(cpu) / max(cpus) cpu,
  max(waits) FILTER (role IN ('processor', 'handler')) waits, sum(ring) ring FROM process GROUP BY w),
 own AS (SELECT w, commits, write FROM process JOIN slow USING (w) WHERE role = 'handler' AND index = h),
 conn AS (SELECT time_bucket(INTERVAL '{window_s} seconds', time AT TIME ZONE 'UTC') w,
    count(*) FILTER (event = 'open') opened
  FROM read_parquet('{log}/connections/**/*.parquet') GROUP BY w)
SELECT w, n, q / n, pl, q / (q + l + r + a), (q + l + r + a), s / (q + l + r + a + s), h, hot.us / slow.us,
  client.us / s, pb, hb, cpu, waits, ring, commits, write, coalesce(opened, 0)
FROM total JOIN slow USING (w) LEFT JOIN hot USING (w) JOIN client USING (w) LEFT JOIN role USING (w)
LEFT JOIN own USING (w) LEFT JOIN conn USING (w) ORDER BY w
"""

#: Of a log in a range: each user's charge in each second, and the rate then: over ten other seconds, by a join.
CHARGES = """
WITH r AS (SELECT *, epoch_us(time) + requestQueueTimeUs + localTimeUs + remoteTimeUs answered
           FROM read_parquet('{log}/requests/**/*.parquet', hive_partitioning = true)
           WHERE time >= TIMESTAMPTZ '{start}+00' - INTERVAL 11 SECONDS AND time < TIMESTAMPTZ '{end}+00'),
 one AS (SELECT 'produce' quota, *, requestBytes::BIGINT charge FROM r WHERE requestApiKey = 0
   UNION ALL SELECT 'fetch' quota, *, responseBytes::BIGINT charge FROM r WHERE requestApiKey = 1
   UNION ALL SELECT 'request' quota, *, localTimeUs + sendTimeUs charge FROM r WHERE acks IS DISTINCT FROM 0),
 s AS (SELECT quota, {by}, answered // 1000000 AS sec, sum(charge * sampleWeight)::BIGINT amount,
              sum(sampleWeight)::BIGINT requests FROM one GROUP BY ALL{more}),
 w AS (SELECT s.quota, {by_of_s}, s.sec, any_value(s.requests) requests, any_value(s.amount) amount,
              sum(p.amount)::BIGINT total,
              greatest(s.sec + 1 - min(p.sec), 10)::DOUBLE elapsed
       FROM s JOIN s p ON s.quota = p.quota AND {same} AND p.sec BETWEEN s.sec - 10 AND s.sec
       GROUP BY s.quota, {by_of_s}, s.sec)
SELECT quota, {by}, sec, requests, amount, elapsed, total / elapsed / if(quota = 'request', 10000, 1) AS rate,
 sec >= epoch(TIMESTAMPTZ '{start}+00') AND sec < epoch(TIMESTAMPTZ '{end}+00') AS asked FROM w ORDER BY sec
"""
CONNECTION_CHARGES = """
   UNION ALL SELECT 'connection', address, epoch_us(time) // 1000000, count(*)::BIGINT, count(*)::BIGINT
   FROM read_parquet('{log}/connections/**/*.parquet', hive_partitioning = true)
   WHERE event = 'open' AND time >= TIMESTAMPTZ '{start}+00' - INTERVAL 11 SECONDS AND time < TIMESTAMPTZ '{end}+00'
   GROUP BY ALL
"""
MUTATION_CHARGES = """
   UNION ALL SELECT 'mutation', {by}, (epoch_us(time) + requestQueueTimeUs) // 1000000,
                    sum(partitionCount * sampleWeight)::BIGINT, sum(sampleWeight)::BIGINT
   FROM r WHERE requestApiKey IN (19, 20, 37) AND partitionCount > 0 GROUP BY ALL
"""


def of_range(log: Path, dataset: str, time_range: tuple[str, str], sql: str) -> str:
    """Return a query on `r` and `q` with their definitions: rows of a log in a range of two ISO times of UTC."""
    start, end = (f"TIMESTAMPTZ '{text}+00'" for text in time_range)
    tables = (
        f"{name} AS (SELECT *{weight} FROM read_parquet('{log}/{of}/**/*.parquet', hive_partitioning = true, "  # noqa: S608
        f"union_by_name = true) WHERE time >= {start} AND time < {end})"
        for name, of in (("r", dataset), ("q", "requests"))
        for weight in [", sampleWeight::BIGINT w" if of == "requests" else ""]
    )
    return f"WITH {', '.join(tables)} {sql}"


def charges(log: Path, time_range: tuple[str, str], by: Iterable[str], quotas: Iterable[str]) -> str:
    """Return the query of `CHARGES` for entities of some columns, with quotas on connections and mutations if named."""
    columns, named = tuple(by), set(quotas)
    more = (CONNECTION_CHARGES if "connection" in named else "") + (MUTATION_CHARGES if "mutation" in named else "")
    said = {"log": log, "start": time_range[0], "end": time_range[1], "by": ", ".join(columns)}
    by_of_s = ", ".join(f"s.{name}" for name in columns)
    same = " AND ".join(f"s.{name} IS NOT DISTINCT FROM p.{name}" for name in columns)
    return CHARGES.format(**said, more=more.format(**said), by_of_s=by_of_s, same=same)
