"""Request logs of any size for measuring the Spark jobs, written by DuckDB in the recorder's layout.

Sixty clients, each with a library, a listener and one or two topics of its own, send the mix of a busy broker: mostly
Produce and Fetch, a few other requests, few errors. Durations spread over several powers of ten, like measured ones.
The recorder's other datasets are written too: connections, groups, and processes.
"""

from pathlib import Path

import duckdb

#: Rows of an hour, about 1,200 requests a second.
ROWS_PER_HOUR = 4_200_000
START = "2026-03-01 00:00:00+00"
_FILES_OF_AN_HOUR = 2

_ROWS = """
SELECT range AS number, (range * {span_us} // {rows})::BIGINT AS offset_us, hash(range) AS h, hash(range, 1) AS h1,
       hash(range, 2) AS h2, hash(range, 3) AS h3, (h % 60)::INT AS client, (h1 % 1000)::INT AS dice
FROM range({first}, {last})
"""

_SPREAD = "(-ln(((({hash} >> {shift}) & 65535) + 1) / 65537.0) * {mean} + {least})::BIGINT"


def _duration(hash_name: str, shift: int, mean: str, least: int) -> str:
    return _SPREAD.format(hash=hash_name, shift=shift, mean=mean, least=least)


_DETAILS = f"""
SELECT TIMESTAMPTZ '{START}' + to_microseconds(offset_us) AS time,
  CASE WHEN dice < 600 THEN 0 WHEN dice < 900 THEN 1 WHEN dice < 940 THEN 3 WHEN dice < 980 THEN 12 ELSE 8 END AS api,
  client, number, h2, h3, dice,
  {_duration("h2", 0, "(10 + client % 7)", 3)} AS requestQueueTimeUs,
  {_duration("h2", 16, "(40 + 3 * client)", 15)} AS localTimeUs,
  CASE WHEN dice BETWEEN 600 AND 800 THEN {_duration("h2", 32, "2000", 20)} ELSE 0 END AS remoteTimeUs,
  {_duration("h3", 0, "8", 2)} AS responseQueueTimeUs,
  {_duration("h3", 16, "12", 4)} AS sendTimeUs
FROM rows
"""  # noqa: S608

_COLUMNS = """
SELECT time, api::SMALLINT AS requestApiKey,
  CASE api WHEN 0 THEN 'PRODUCE' WHEN 1 THEN 'FETCH' WHEN 3 THEN 'METADATA' WHEN 12 THEN 'HEARTBEAT'
  ELSE 'OFFSET_COMMIT' END AS requestApiKeyName,
  (4 + client % 3 + api)::SMALLINT AS requestApiVersion, false AS requestApiVersionDeprecated,
  (number % 2000000000)::INTEGER AS correlationId, '0-1-' || client AS connection, 'service-' || client AS clientId,
  CASE client % 3 WHEN 0 THEN 'librdkafka' WHEN 1 THEN 'apache-kafka-java' ELSE 'aiokafka' END AS softwareName,
  CASE client % 3 WHEN 0 THEN '2.8.0' WHEN 1 THEN '4.0.0' ELSE '0.12.0' END AS softwareVersion,
  '10.0.0.' || client AS address, 'User:ANONYMOUS' AS principal, 'PLAINTEXT' AS securityProtocol,
  CASE WHEN client % 10 = 0 THEN 'INTERNAL' ELSE 'PLAINTEXT' END AS listener, (client % 3)::SMALLINT AS processor,
  (client % 4)::SMALLINT AS handler,
  CASE WHEN api <= 1 THEN 'topic-' || (client // 2 + (h3 >> 40) % (1 + client % 2)) END AS topic,
  CASE WHEN api <= 1 THEN ((h3 >> 44) % 12)::INTEGER END AS partition, (api <= 1)::INTEGER AS partitionCount,
  CASE WHEN api <= 1 THEN ((h3 >> 48) % 500)::INTEGER END AS records,
  (100 + (h2 >> 48) % 16000)::INTEGER AS requestBytes, (60 + (h3 >> 50) % 8000)::INTEGER AS responseBytes,
  CASE WHEN dice = 7 THEN 6 ELSE 0 END::SMALLINT AS errorCode,
  CASE WHEN dice = 7 THEN 'NOT_LEADER_OR_FOLLOWER' ELSE 'NONE' END AS errorName,
  CASE WHEN api = 0 THEN -1 END::SMALLINT AS acks, CASE WHEN api = 1 THEN 0 END::SMALLINT AS isolationLevel,
  CASE WHEN api = 1 THEN 1 END::INTEGER AS minBytes,
  requestQueueTimeUs, localTimeUs, remoteTimeUs, responseQueueTimeUs, sendTimeUs,
  requestQueueTimeUs + localTimeUs + remoteTimeUs + responseQueueTimeUs + sendTimeUs AS totalTimeUs,
  0::BIGINT AS throttleTimeUs, false AS slow, 1::INTEGER AS sampleWeight,
  CASE WHEN api = 0 THEN 'lz4' END AS codec,
  CASE WHEN api <= 1 THEN ((h2 >> 48) % 16000)::INTEGER END AS recordBytes,
  CASE WHEN api = 1 THEN 500 END::INTEGER AS maxWaitMs,
  strftime(time AT TIME ZONE 'UTC', '%Y-%m-%d') AS date, strftime(time AT TIME ZONE 'UTC', '%H') AS hour
FROM details
"""


_PARTITION = "strftime(time AT TIME ZONE 'UTC', '%Y-%m-%d') AS date, strftime(time AT TIME ZONE 'UTC', '%H') AS hour"
#: By dataset, the rows of a number of seconds.
_OTHERS = {
    # A connection of each client all the time, and one for 100 ms each minute.
    "connections": """
SELECT time, event, connection, clientId, '10.0.0.' || client AS address, 'PLAINTEXT' AS listener,
  if(event = 'close', 'client', NULL) AS cause, if(event = 'close', 100000, NULL)::BIGINT AS durationUs,
  2::BIGINT AS requests FROM (
  SELECT {start} AS time, 'open' AS event, '0-1-' || range AS connection, 'service-' || range AS clientId,
    range AS client FROM range(60)
  UNION ALL SELECT {start} + to_seconds(60 * range + 30) + to_milliseconds(if(e = 'close', 100, 0)), e,
    '0-2-' || range, 'cron', 60 FROM range({seconds} // 60), unnest(['open', 'close']) AS events(e))""",
    # Ten groups that rebalance once in ten minutes, and whose lag is recorded every ten seconds.
    "groups": """
SELECT time, 'group-' || g AS "group", member, event, reason, (g % 4)::SMALLINT AS handler, 'classic' AS kind,
  generation::INTEGER AS generation, 3::INTEGER AS members, durationUs::BIGINT AS durationUs, topic,
  if(topic IS NULL, NULL, 0)::INTEGER AS partition, records::BIGINT AS records FROM (
  SELECT {start} + to_seconds(10 * range + 1) AS time, g, NULL AS member, 'lag' AS event, NULL AS reason,
    NULL AS generation, if(range % 7 = 0, 0, 1000000) AS durationUs, 'topic-' || g AS topic,
    if(range % 7 = 0, 0, 100) AS records FROM range(({seconds} - 1) // 10), range(10) AS groups(g)
  UNION ALL SELECT {start} + to_seconds(600 * range + 60) + to_milliseconds(step * 300), g,
    if(step = 0, 'member-' || range % 5, NULL), ['join', 'rebalance', 'stable'][step + 1],
    if(step = 1, 'member joined', NULL), range + if(step = 2, 1, 0), if(step = 2, 300000, NULL), NULL, NULL
  FROM range({seconds} // 600), range(10) AS groups(g), range(3) AS steps(step))""",
    # Three processors and four handlers.
    "roles": """
SELECT {start} + to_seconds(10 * range + 9) AS time, 10000000::BIGINT AS intervalUs, true AS traffic,
  if(i < 3, 'processor', 'handler') AS role, if(i < 3, i, i - 3)::SMALLINT AS index, 1::INTEGER AS generation,
  0::INTEGER AS restarts, 'running' AS state, 8::INTEGER AS cpus, 0.5 + (range % 30) / 100 AS idleShare,
  3000000::BIGINT AS cpuTimeUs, 200000::BIGINT AS runQueueTimeUs, 0.01::DOUBLE AS ringFill,
  0.05::DOUBLE AS ringFillPeak, (3000 + range % 500)::BIGINT AS requests, 900::BIGINT AS commits,
  90000::BIGINT AS commitTimeUs, 0::BIGINT AS mutesRingFull, 20::BIGINT AS connections
FROM range({seconds} // 10), range(7) AS processes(i)""",
    "gaps": """
SELECT {start} AS time, {start} AS since, 'requests' AS dataset, 'processor' AS source, 0::SMALLINT AS index,
  'ring_full' AS cause, 3::BIGINT AS rows""",
}


def generate(root: Path, rows: int) -> int:
    """Write a log of this many rows and return the number of hours it covers; each hour's requests are in two files."""
    hours = max(1, -(-rows // ROWS_PER_HOUR))
    parts = _FILES_OF_AN_HOUR * hours
    for dataset in ("requests", *_OTHERS):
        (root / dataset).mkdir(parents=True)
    with duckdb.connect() as connection:
        for part in range(parts):
            # The first row of a part is the first one with its rounded-down time in that part.
            first, last = -(-rows * part // parts), -(-rows * (part + 1) // parts)
            numbered = _ROWS.format(first=first, last=last, rows=rows, span_us=hours * 3_600_000_000)
            sql = f"WITH rows AS ({numbered}), details AS ({_DETAILS}) {_COLUMNS}"
            _copy(connection, root / "requests", sql, part)
        for dataset, text in _OTHERS.items():
            sql = text.format(start=f"TIMESTAMPTZ '{START}'", seconds=hours * 3600)
            _copy(connection, root / dataset, f"SELECT *, {_PARTITION} FROM ({sql})", 0)  # noqa: S608
    return hours


def _copy(connection: duckdb.DuckDBPyConnection, dataset: Path, sql: str, number: int) -> None:
    """Write rows below a dataset, to a file of this number in the directory of each hour."""
    connection.execute(
        f"COPY ({sql}) TO '{dataset}/v=1' "
        "(FORMAT parquet, PARTITION_BY (date, hour), COMPRESSION zstd, COMPRESSION_LEVEL 1, "
        "PARQUET_VERSION v2, ROW_GROUP_SIZE 100000, OVERWRITE_OR_IGNORE, "
        f"FILENAME_PATTERN 'part-generated-{number + 1}-{{i}}')"
    )
