"""The schemas of the request log's datasets, as in docs/request-log.md, and of their partition columns.

Files are read with these schemas instead of their own, so that a column missing in an older file is null. A test
compares them with the recorder's declarations.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

#: The format of the log that these schemas describe: the directory `v=1`.
FORMAT_VERSION = 1

_TYPES: dict[str, DataType] = {
    "timestamp": TimestampType(),
    "string": StringType(),
    "bool": BooleanType(),
    "int16": ShortType(),
    "int32": IntegerType(),
    "int64": LongType(),
    "double": DoubleType(),
}

_CLIENT = """
    connection string, clientId string, softwareName string, softwareVersion string, address string, principal string,
    securityProtocol string, listener string, processor int16
"""

_DATASETS = {
    "requests": f"""
        time timestamp, requestApiKey int16, requestApiKeyName string, requestApiVersion int16,
        requestApiVersionDeprecated bool, correlationId int32, {_CLIENT}, handler int16, topic string, partition int32,
        partitionCount int32, records int32, requestBytes int32, responseBytes int32, errorCode int16, errorName string,
        acks int16, isolationLevel int16, minBytes int32, requestQueueTimeUs int64, localTimeUs int64,
        remoteTimeUs int64, responseQueueTimeUs int64, sendTimeUs int64, totalTimeUs int64, throttleTimeUs int64,
        slow bool, sampleWeight int32, codec string, recordBytes int32, maxWaitMs int32,
        throttledBy string, injected string, deniedOperation string, deniedResourceType string, deniedResource string
    """,
    "connections": f"""
        time timestamp, event string, {_CLIENT}, cause string, durationUs int64, requests int64, requestBytes int64,
        responseBytes int64, errors int64
    """,
    "groups": """
        time timestamp, group string, member string, event string, reason string, handler int16, kind string,
        generation int32, members int32, durationUs int64, topic string, partition int32, records int64,
        delivered int64, redelivered int64, accepted int64, released int64, rejected int64, locksExpired int64,
        deadLetters int64
    """,
    "client_metrics": """
        time timestamp, valueTime timestamp, clientInstanceId string, clientId string, user string, softwareName string,
        softwareVersion string, address string, name string, attributes string, kind string, isDelta bool,
        value double, count int64, handler int16
    """,
    "roles": """
        time timestamp, intervalUs int64, traffic bool, role string, index int16, generation int32, restarts int32,
        state string, pid int32, cpus int32, idleShare double, cpuTimeUs int64, runQueueTimeUs int64, pssBytes int64,
        ringFill double, ringFillPeak double, arenaUsedBytes int64, arenaBytes int64, arenaDepletedUs int64,
        connections int64, connectionsOpened int64, connectionsClosed int64, connectionsRefused int64, blockedUs int64,
        requests int64, errors int64, bytesReceived int64, bytesSent int64, recordsAppended int64, bytesAppended int64,
        commits int64, commitTimeUs int64, fetchesParked int64, slowTurns int64, mutesPipeline int64, mutesArena int64,
        mutesRingFull int64, mutesOutput int64, mutesOrder int64, mutesDraining int64, mutesPipelineBytes int64,
        mutesThrottled int64
    """,
    "gaps": """
        time timestamp, since timestamp, dataset string, source string, index int16, cause string, rows int64
    """,
    "history": """
        time timestamp, kind string, name string, detail string, requests int64, errors int64, bytesIn int64,
        bytesOut int64, records int64, lagUs int64, throttleTimeUs int64, utilisation double, utilisationMean double,
        ringFillPeak double, cpuTimeUs int64, connectionsOpened int64, connectionsClosed int64,
        connectionsRefused int64, connections int64, logBytes int64, diskFreeBytes int64, diskBytes int64,
        queueP50Us int64, queueP95Us int64, queueP99Us int64, localP50Us int64, localP95Us int64, localP99Us int64,
        remoteP50Us int64, remoteP95Us int64, remoteP99Us int64, responseQueueP50Us int64, responseQueueP95Us int64,
        responseQueueP99Us int64, sendP50Us int64, sendP95Us int64, sendP99Us int64, totalP50Us int64,
        totalP95Us int64, totalP99Us int64
    """,
}

#: The columns in a dataset's directory names, in UTC.
PARTITION_COLUMNS = ("date", "hour")
_PARTITIONS = (StructField("date", StringType()), StructField("hour", IntegerType()))


def _fields(text: str) -> list[StructField]:
    pairs = (column.split() for column in text.replace("\n", " ").split(","))
    return [StructField(name, _TYPES[kind]) for name, kind in pairs]


#: Schema by dataset, partition columns last.
SCHEMAS: dict[str, StructType] = {name: StructType([*_fields(text), *_PARTITIONS]) for name, text in _DATASETS.items()}


def no_rows(spark: SparkSession, schema: StructType) -> DataFrame:
    """Return a table without rows, which takes no task: `createDataFrame` starts interpreters to read none."""
    columns = [f"CAST(NULL AS {column.dataType.simpleString()}) AS `{column.name}`" for column in schema]
    return spark.range(0).where("false").selectExpr(*columns)
