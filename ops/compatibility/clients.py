"""All clients: their requirements, how to start them, and how to parse their output.

A row of CLIENTS is one program run against one broker. Knows nothing of pytest and nothing of how the table is shown.
"""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from ops.compatibility import outcomes, preparation
from ops.compatibility.outcomes import Outcome, Verdict
from ops.compatibility.target import Target, handlers_dying

SOURCES = Path(__file__).parent
GO_GATES = ("TestGroupETL", "TestTxnEtl")
GO_RECORDS = 20_000
# A member that has left is back after a kill, for the length of its session: 20 s here. Two handlers die in turns.
GO_KILL_SECONDS = 12
# Those of SCRAM are run by tests/compat/test_sasl.py.
GO_OTHERS_SKIPPED = "^(TestGroupETL|TestTxnEtl|TestSCRAM.*)$"


@dataclass(frozen=True)
class Client:
    """One client program. `key` is its name for --only; `part` is the part of the preparation that it needs.

    While it runs, a handler is killed every `kill_seconds` (0: none is). `settings` are its broker's settings.
    """

    key: str
    name: str
    part: str
    version: Callable[[], str]
    command: Callable[[Target, tuple[str, ...]], list[str]]
    environment: Mapping[str, str] = field(default_factory=dict)
    limit_seconds: float = 600.0
    is_go_test: bool = False
    kill_seconds: float = 0.0
    reads_files: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)

    def run(self, target: Target, features: tuple[str, ...] = ()) -> list[Outcome]:
        """Run it to its end, or for its time, and return the outcome of each feature (none named: all)."""
        environment = {**os.environ, **self.environment, "KGO_SEEDS": target.bootstrap}
        if target.data_dir is not None:
            environment["ROTUNDA_DATA"] = str(target.data_dir)
        with handlers_dying(target.broker, self.kill_seconds) if self.kill_seconds else nullcontext():
            folder = preparation.GO_SOURCES if self.is_go_test else SOURCES
            output, errors, status = run_program(
                self.command(target, features), folder, environment, self.limit_seconds
            )
        if self.is_go_test:
            return outcomes.of_go_tests(output + errors, status, GO_GATES)
        return outcomes.of_lines(output, errors, status)


def run_program(
    command: list[str], folder: Path, environment: Mapping[str, str], limit_seconds: float
) -> tuple[str, str, int | None]:
    """Return standard output, standard error and exit status; the status is None when it was killed."""
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as process:
        try:
            output, errors = process.communicate(timeout=limit_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            output, errors = process.communicate()
            return output, errors, None
        return output, errors, process.returncode


def java(suite: str) -> Callable[[Target, tuple[str, ...]], list[str]]:
    def command(target: Target, features: tuple[str, ...]) -> list[str]:
        classes = f"{preparation.CLASSES}:{preparation.JARS}/*"
        return [
            "java",
            "-XX:TieredStopAtLevel=1",
            "-Xmx512m",
            "-cp",
            classes,
            "Main",
            target.bootstrap,
            suite,
            *features,
        ]

    return command


def node(program: str) -> Callable[[Target, tuple[str, ...]], list[str]]:
    return lambda target, features: ["node", str(preparation.NODE / program), target.bootstrap, *features]


def in_environment(part: str) -> Callable[[Target, tuple[str, ...]], list[str]]:
    """Return the command of a Python program with an environment of its own for its libraries."""
    program = str(SOURCES / part / f"with_{part}.py")
    return lambda target, features: [str(preparation.python_of(part)), program, target.bootstrap, *features]


def go_gates(_target: Target, features: tuple[str, ...]) -> list[str]:
    """Return the command of the ETL tests; features are names of tests."""
    pattern = "|".join(features or GO_GATES)
    return [str(preparation.GO_TEST), "-test.v", "-test.timeout=580s", f"-test.run=^({pattern})$"]


def go_others(_target: Target, _features: tuple[str, ...]) -> list[str]:
    return [str(preparation.GO_TEST), "-test.v", "-test.timeout=580s", f"-test.skip={GO_OTHERS_SKIPPED}"]


def version_of_pom(folder: str, property_name: str) -> Callable[[], str]:
    def version() -> str:
        text = (SOURCES / folder / "pom.xml").read_text()
        found = re.search(f"<{re.escape(property_name)}>(.*?)<", text)
        return found.group(1) if found else "?"

    return version


def version_of_npm(package: str) -> Callable[[], str]:
    return lambda: str(json.loads((SOURCES / "node" / "package.json").read_text())["dependencies"][package])


def version_of_librdkafka() -> str:
    package = preparation.LIBRDKAFKA_PACKAGE / "package.json"
    return str(json.loads(package.read_text())["librdkafka"]) if package.exists() else "?"


def version_of_go() -> str:
    found = re.search(r"franz-go v(\S+)", (SOURCES / "go" / "go.mod").read_text())
    return found.group(1) if found else "?"


def version_of_lock(part: str, package: str) -> Callable[[], str]:
    def version() -> str:
        found = re.search(
            f"^{re.escape(package)}==(.*)$", (SOURCES / part / "requirements.lock").read_text(), re.MULTILINE
        )
        return found.group(1) if found else "?"

    return version


def framework(part: str, name: str, package: str, *, kill_seconds: float = 0.0) -> Client:
    killed = kill_seconds > 0
    return Client(
        f"{part}-killed" if killed else part,
        f"{name}, handlers killed" if killed else name,
        part,
        version_of_lock(part, package),
        in_environment(part),
        FRAMEWORK_ENVIRONMENT,
        kill_seconds=kill_seconds,
    )


def python(key: str, name: str, package: str, program: str, *, kill_seconds: float = 0.0) -> Client:
    start = (sys.executable, "-W", "ignore::DeprecationWarning", str(SOURCES / "python" / program))
    return Client(
        *(key, name, "python", lambda: importlib.metadata.version(package)),
        lambda target, features: [*start, target.bootstrap, *features],
        PYTHON_ENVIRONMENT,
        kill_seconds=kill_seconds,
    )


def mirror(key: str, name: str, *, kill_seconds: float = 0.0, **environment: str) -> Client:
    program = str(SOURCES / "python" / "with_mirror_maker.py")
    return Client(
        *(key, f"MirrorMaker 2, {name}", "mirror", version_of_pom("mirror", "kafka.version")),
        lambda target, features: [sys.executable, program, target.bootstrap, *features],
        {**PYTHON_ENVIRONMENT, **environment},
        kill_seconds=kill_seconds,
    )


def librdkafka(key: str, about: str, suite: str, *, kill_seconds: float = 0.0, **settings: str) -> Client:
    """Return the row of one suite of librdkafka's tests; features are names of tests."""
    program = str(SOURCES / "librdkafka_suite.py")
    return Client(
        *(key, f"librdkafka's test-suite{about}", "librdkafka", version_of_librdkafka),
        lambda target, features: [sys.executable, program, target.bootstrap, suite, *features],
        LIBRDKAFKA_ENVIRONMENT,
        kill_seconds=kill_seconds,
        settings={**LIBRDKAFKA_SETTINGS, **{name.replace("_", "."): value for name, value in settings.items()}},
    )


KAFKA = version_of_pom("java", "kafka.version")
GO_ENVIRONMENT = {"KGO_TEST_RF": "1", "KGO_LOG_LEVEL": "none", "KGO_TEST_RECORDS": str(GO_RECORDS)}
LIBRDKAFKA_ENVIRONMENT = {
    "ROTUNDA_LIBRDKAFKA": str(preparation.LIBRDKAFKA_SOURCES),
    "ROTUNDA_KAFKA_JARS": str(preparation.JARS),
}
# As librdkafka's own test clusters have it; members of a group start one after the other.
LIBRDKAFKA_SETTINGS = {"num.partitions": "4", "group.initial.rebalance.delay.ms": "3000"}
PYTHON_ENVIRONMENT = {"PYTHONPATH": str(preparation.REPOSITORY)}
FRAMEWORK_ENVIRONMENT = {"PYTHONPATH": str(SOURCES / "python")}
SPARK_ENVIRONMENT = {"ROTUNDA_SPARK_JARS": str(preparation.SPARK_JARS), **FRAMEWORK_ENVIRONMENT}

CLIENTS: tuple[Client, ...] = (
    Client("java-client", "Java client", "java", KAFKA, java("client")),
    Client("java-killed", "Java client, handlers killed", "java", KAFKA, java("client"), kill_seconds=6),
    Client("java-admin", "Java Admin client", "java", KAFKA, java("admin")),
    Client("java-tools", "Kafka's command-line tools", "java", KAFKA, java("tools")),
    Client("java-filling", "Java client, for dump-log", "java", KAFKA, java("filling")),
    Client("java-files", "Kafka's dump-log", "java", KAFKA, java("files"), reads_files=True),
    Client("streams", "Kafka Streams", "java", KAFKA, java("streams")),
    Client("streams-killed", "Kafka Streams, handlers killed", "java", KAFKA, java("streams"), kill_seconds=3),
    Client("franz-go", "franz-go's test-suite", "go", version_of_go, go_gates, GO_ENVIRONMENT, is_go_test=True),
    Client(
        *("franz-go-others", "franz-go's test-suite, the rest", "go", version_of_go, go_others, GO_ENVIRONMENT),
        is_go_test=True,
    ),
    Client(
        *("franz-go-killed", "franz-go's test-suite, handlers killed", "go", version_of_go, go_gates, GO_ENVIRONMENT),
        is_go_test=True,
        kill_seconds=GO_KILL_SECONDS,
    ),
    librdkafka("librdkafka", "", "classic"),
    librdkafka("librdkafka-killed", ", handlers killed", "killed", kill_seconds=6),
    librdkafka("librdkafka-848", ", KIP-848 groups", "consumer"),
    librdkafka("librdkafka-share", ", share groups", "share", group_share_min_record_lock_duration_ms="1000"),
    librdkafka(
        *("librdkafka-topics", ", no topic is created by itself", "noautocreate"), auto_create_topics_enable="false"
    ),
    Client("kafkajs", "KafkaJS", "node", version_of_npm("kafkajs"), node("kafkajs.mjs")),
    Client(
        "platformatic", "@platformatic/kafka", "node", version_of_npm("@platformatic/kafka"), node("platformatic.mjs")
    ),
    python("confluent", "confluent-kafka", "confluent-kafka", "with_confluent.py"),
    python(
        *("confluent-killed", "confluent-kafka, handlers killed", "confluent-kafka", "with_confluent.py"),
        kill_seconds=3,
    ),
    python("confluent-share", "confluent-kafka's ShareConsumer", "confluent-kafka", "with_confluent_share.py"),
    python("kafka-python", "kafka-python", "kafka-python", "with_kafka_python.py"),
    python("aiokafka", "aiokafka", "aiokafka", "with_aiokafka.py"),
    mirror("mirror", "to Apache Kafka"),
    mirror("mirror-killed", "to Apache Kafka, handlers killed", kill_seconds=6),
    mirror("mirror-back", "from Apache Kafka", ROTUNDA_MIRROR_BACK="yes"),
    Client(
        "spark",
        "Spark's Kafka source and sink",
        "spark",
        version_of_pom("spark", "spark.version"),
        in_environment("spark"),
        SPARK_ENVIRONMENT,
    ),
    framework("faststream", "FastStream", "faststream"),
    framework("quixstreams", "Quix Streams", "quixstreams"),
    framework("quixstreams", "Quix Streams", "quixstreams", kill_seconds=5),
    framework("faust", "Faust", "faust-streaming"),
    framework("bytewax", "Bytewax", "bytewax"),
)


def by_key(key: str) -> Client:
    """Return the client with that key. KeyError for an unknown key."""
    return {client.key: client for client in CLIENTS}[key]


def write_files(target: Target) -> None:
    """Have groups and transactions write something into every kind of file."""
    for outcome in by_key("java-filling").run(target):
        if outcome.verdict is not Verdict.PASSED:
            print(f"{outcome.feature}: {outcome.detail}", file=sys.stderr)
