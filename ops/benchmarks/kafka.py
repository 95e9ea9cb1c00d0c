"""Apache Kafka's broker from Maven Central, started like the scripts and sample configuration of its distribution do.

One node that is broker and controller, with the heap and the collector of its scripts, on free ports, with its data in
the given directory. Nothing is tuned for speed. Knows nothing of the measurements.
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from ops.benchmarks import processor_time
from ops.benchmarks.processor_time import NOTHING, Spent
from ops.benchmarks.programs import DEADLINE_SECONDS
from ops.broker import ProgramError
from ops.compatibility import preparation
from ops.free_ports import free_ports
from rotunda.broker.log.data_dir import random_uuid

START_SECONDS = 90.0
LOG_TAIL_CHARACTERS = 2000
_LOOK_S = 0.05
#: The log line at the end of a start: the socket opens before the broker accepts topic creation.
_STARTED = "Kafka Server started"

#: JVM options of kafka-server-start.sh and kafka-run-class.sh.
JAVA_OPTIONS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)

#: The distribution's server.properties, but for addresses and the directory. The last line is for the loads' groups,
#: which would form for an hour otherwise; it is Rotunda's default.
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs={data}
num.partitions=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
group.initial.rebalance.delay.ms=0
"""

LOGGING = """\
rootLogger.level=INFO
rootLogger.appenderRef.file.ref=file
appender.file.type=File
appender.file.name=file
appender.file.fileName={log}
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=[%d] %p %m (%c)%n
"""

#: Threads by kind, recognised by the prefix of their name in a thread dump.
KINDS = {
    "network threads": r"data-plane-kafka-network-thread-",
    "request handlers": r"data-plane-kafka-request-handler-",
    "group coordinator": r"group-coordinator-event-processor-",
    "compilers": r"C[12] CompilerThread",
    "collector": r"G1 |GC Thread|VM Thread",
}
_DUMPED = re.compile(r'^"(?P<name>[^"]*)".* nid=(?P<id>0x[0-9a-f]+|\d+)', re.MULTILINE)


@dataclass(frozen=True)
class RunningKafka:
    """A broker of Apache Kafka that has started."""

    port: int
    pid: int

    def threads(self) -> dict[str, list[int]]:
        """Return the ids of the threads by kind; only a dump has their whole names."""
        dump = _output("jstack", str(self.pid))
        found: dict[str, list[int]] = {kind: [] for kind in KINDS}
        for thread in _DUMPED.finditer(dump):
            for kind, name in KINDS.items():
                if re.match(name, thread["name"]):
                    found[kind].append(int(thread["id"], 0))
        return found

    def spent(self, threads: dict[str, list[int]]) -> dict[str, Spent]:
        """Return the processor time of the whole JVM by kind of thread."""
        parts = {kind: processor_time.of_threads(self.pid, ids) for kind, ids in threads.items()}
        known = NOTHING
        for part in parts.values():
            known = known.plus(part)
        return {**parts, "others": processor_time.of_process(self.pid).minus(known)}


def prepare() -> None:
    """Install Kafka's jars unless they exist. Raises ProgramError when that fails."""
    try:
        for part in ("java", "kafka"):
            preparation.prepare(part)
        if shutil.which("jstack") is None:
            raise preparation.PreparationError("jstack, which is part of a JDK, is not installed")
    except preparation.PreparationError as failure:
        raise ProgramError(f"Apache Kafka cannot be run: {failure}") from failure


@contextmanager
def kafka(directory: Path, settings: Mapping[str, str] = MappingProxyType({})) -> Iterator[RunningKafka]:
    """Format a directory, start a broker on it and yield it once it has started; `prepare` has been called.

    ``settings`` are appended to those of the sample configuration.

    Raises ProgramError with the end of its log when it does not start.
    """
    directory.mkdir(parents=True)
    properties, log = directory / "server.properties", directory / "server.log"
    port, controller_port = free_ports(2)
    text = PROPERTIES.format(port=port, controller_port=controller_port, data=directory / "data")
    properties.write_text(text + "".join(f"{name}={value}\n" for name, value in settings.items()))
    logging = directory / "log4j2.properties"
    logging.write_text(LOGGING.format(log=log))
    classes = f"{preparation.JARS}/*{os.pathsep}{preparation.KAFKA_JARS}/*"
    java = ["java", f"-Dlog4j2.configurationFile={logging}", "-cp", classes]
    _output(*java, "kafka.tools.StorageTool", "format", "--standalone", "-t", random_uuid(), "-c", str(properties))
    with (directory / "output").open("wb") as output:
        command = [*java[:1], *JAVA_OPTIONS, *java[1:], "kafka.Kafka", str(properties)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        if not _starts(process, log):
            said = "".join(path.read_text(errors="replace") for path in (directory / "output", log) if path.exists())
            raise ProgramError(
                f"Apache Kafka did not start in {START_SECONDS:.0f} s (exit status {process.poll()}); "
                f"it logged:\n{said[-LOG_TAIL_CHARACTERS:]}"
            )
        yield RunningKafka(port, process.pid)
    finally:
        process.terminate()
        try:
            process.wait(DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _starts(process: subprocess.Popen[bytes], log: Path) -> bool:
    """Wait until a broker has started; return whether it has."""
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        if log.exists() and _STARTED in log.read_text(errors="replace"):
            return True
        time.sleep(_LOOK_S)
    return False


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=START_SECONDS)
    if done.returncode:
        raise ProgramError(f"{command[0]} failed: {(done.stdout + done.stderr)[-LOG_TAIL_CHARACTERS:]}")
    return done.stdout
