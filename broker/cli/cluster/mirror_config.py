"""`rotunda mirror-config`: the properties with which MirrorMaker 2 migrates a broker to an Apache Kafka.

Prints text; reads only the run directory, for the broker's address. Passwords stay in their files: MirrorMaker reads
them from there. The reason for each value is in a comment, and in docs/outgrowing.md.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from pathlib import Path

from rotunda.broker.cli.cluster.cluster_client import running
from rotunda.broker.cli.config import check_address
from rotunda.broker.client.access import SECRETS, read_properties
from rotunda.broker.errors import UsageError

_FILES = "org.apache.kafka.common.config.provider.FileConfigProvider"
_OF_LIBRDKAFKA = {
    "sasl.username": "sasl.jaas.config",
    "sasl.password": "sasl.jaas.config",
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "metadata.broker.list": "bootstrap.servers",
}

_PROPERTIES = """\
# Carries topics, records and positions of groups from Rotunda to an Apache Kafka, as long as this runs:
#   bin/connect-mirror-maker.sh {file}
# Steps before and after: docs/outgrowing.md

clusters = rotunda, kafka
rotunda.bootstrap.servers = {source}
kafka.bootstrap.servers = {target}
{access}
rotunda->kafka.enabled = true
rotunda->kafka.topics = {topics}
rotunda->kafka.groups = {groups}
tasks.max = {tasks}

# Topics keep their names, and nothing is written to Rotunda.
replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
offset-syncs.topic.location = target
emit.heartbeats.enabled = false
heartbeats.replication.enabled = false

# Without aborted records, and without duplicates when MirrorMaker is killed.
rotunda.consumer.isolation.level = read_committed
kafka.exactly.once.source.support = enabled
dedicated.mode.enable.internal.rest = true
listeners = http://127.0.0.1:0

# Groups get their positions, and topics their settings. Rights are left to whoever runs the other cluster.
sync.group.offsets.enabled = true
sync.topic.acls.enabled = false

# New topics and groups are found within seconds. A position is exact when its group has read to the end and this time
# has passed.
refresh.topics.interval.seconds = 10
refresh.groups.interval.seconds = 10
sync.topic.configs.interval.seconds = 10
emit.checkpoints.interval.seconds = 5
sync.group.offsets.interval.seconds = 5
kafka.offset.flush.interval.ms = 5000

# As many replicas as the other cluster gives a topic of its own.
replication.factor = -1
checkpoints.topic.replication.factor = -1
heartbeats.topic.replication.factor = -1
offset-syncs.topic.replication.factor = -1
config.storage.replication.factor = -1
offset.storage.replication.factor = -1
status.storage.replication.factor = -1
"""


def run(parsed: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Print the properties. Raises UsageError, and BootFailed with exit code 3 when no broker runs."""
    for each in parsed.to.split(","):
        check_address(each.strip(), "--to")
    for flag, pattern in (("--topics", parsed.topics), ("--groups", parsed.groups)):
        _check_patterns(flag, pattern)
    source = parsed.command_config or environment.get("ROTUNDA_COMMAND_CONFIG")
    files = {"rotunda": Path(source) if source else None, "kafka": parsed.to_config}
    found = {cluster: read_properties(file) if file else {} for cluster, file in files.items()}
    ours = found["rotunda"].pop("bootstrap.servers", "") if not parsed.run_dir else ""
    lines = [line for cluster, file in files.items() for line in _access(cluster, file, found[cluster])]
    if any("${file:" in line for line in lines):
        lines = ["config.providers = file", f"config.providers.file.class = {_FILES}", *lines]
    print(
        _PROPERTIES.format(
            file="mirror.properties",
            source=parsed.bootstrap or ours or running(parsed, environment).bootstrap,
            target=parsed.to,
            access="".join(f"{line}\n" for line in lines),
            topics=parsed.topics,
            groups=parsed.groups,
            tasks=parsed.tasks,
        ),
        end="",
    )
    return 0


def _check_patterns(flag: str, patterns: str) -> None:
    for each in patterns.split(","):
        try:
            re.compile(each)
        except re.error as failure:
            raise UsageError(f"{flag} {each}: {failure}; expected regular expressions, separated by commas") from None


def _access(cluster: str, file: Path | None, properties: Mapping[str, str]) -> list[str]:
    """Return the lines of MirrorMaker's access to a cluster. Raises UsageError for names unknown to Java."""
    lines = []
    for name, value in properties.items():
        if name in _OF_LIBRDKAFKA:
            raise UsageError(f"{file}: {name} is a librdkafka name; MirrorMaker needs Java's {_OF_LIBRDKAFKA[name]}")
        if name != "bootstrap.servers" and file is not None:
            shown = f"${{file:{file.absolute()}:{name}}}" if name in SECRETS else value
            lines.append(f"{cluster}.{name} = {shown}")
    return lines
