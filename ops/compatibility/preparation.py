"""Installs the client programs' requirements below `.venv/compatibility`: jars, classes, test binaries, node modules.

Each part has a stamp of the files that name its versions, so that a second call does nothing. Packages are downloaded
from the sources configured for this machine's mvn, go, npm and pip.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

SOURCES = Path(__file__).parent
REPOSITORY = SOURCES.parent.parent
HOME = (REPOSITORY / ".venv").resolve() / "compatibility"
JARS = HOME / "jars"
CLASSES = HOME / "classes"
KAFKA_JARS = HOME / "kafka-jars"
SCHEMA_JARS = HOME / "schema-jars"
SCHEMA_CLASSES = HOME / "schema-classes"
MIRROR_JARS = HOME / "mirror-jars"
GO_TEST = HOME / "kgo.test"
GO_SOURCES = HOME / "kgo"
GO_LIMITED = HOME / "limited"
NODE = HOME / "node"
LIBRDKAFKA = HOME / "librdkafka"
LIBRDKAFKA_PACKAGE = LIBRDKAFKA / "node_modules" / "@confluentinc" / "kafka-javascript"
LIBRDKAFKA_SOURCES = LIBRDKAFKA_PACKAGE / "deps" / "librdkafka"
SPARK_JARS = HOME / "spark-jars"
FRAMEWORKS = ("faststream", "quixstreams", "faust", "bytewax")
NOISE = re.compile(r"\x1b\[[0-9;]*m|\S*://\S+")
COMPLAINT_CHARACTERS = 400
GO_PACKAGE = "github.com/twmb/franz-go/pkg/kgo"
#: Of Java's two compilers the quicker one: mvn and javac run for seconds, and use half of the processor time with it.
QUICK_JAVA = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}


class PreparationError(Exception):
    """A client's requirement could not be installed; the text has the cause."""


def run(*command: str, cwd: Path = SOURCES) -> str:
    """Run a command of the preparation and return its output. Raises PreparationError with the output when it fails."""
    program = shutil.which(command[0])
    if program is None:
        raise PreparationError(f"{command[0]} is not installed")
    environment = {**QUICK_JAVA, **os.environ}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PreparationError(f"{Path(command[0]).name} failed: {complaint(done.stdout + done.stderr)}")
    return done.stdout


def complaint(printed: str) -> str:
    """Return the first error that a package tool printed, in one line, without colours and addresses."""
    lines = [line for line in printed.splitlines() if "error" in line.lower()] or printed.splitlines()[-1:]
    return " ".join(NOISE.sub("", line) for line in lines[:1])[:COMPLAINT_CHARACTERS]


def copy_jars(pom: Path, target: Path) -> None:
    """Resolve the dependencies of one pom into a folder."""
    shutil.rmtree(target, ignore_errors=True)
    resolve = "org.apache.maven.plugins:maven-dependency-plugin:2.8:copy-dependencies"
    # Strict checksums; the folder is the only output.
    run("mvn", "-q", "-B", "-C", "-f", str(pom), resolve, f"-DoutputDirectory={target}")


def prepare_java() -> None:
    """Resolve Kafka's jars and compile the Java programs."""
    copy_jars(SOURCES / "java" / "pom.xml", JARS)
    compile_java("java", CLASSES, JARS)


def prepare_kafka() -> None:
    """Install the requirements of Kafka's broker in addition to the jars of the Java clients."""
    prepare("java")
    copy_jars(SOURCES / "kafka" / "pom.xml", KAFKA_JARS)


def prepare_schema() -> None:
    """Resolve the jars with Kafka's message definitions and compile the program that round-trips messages."""
    copy_jars(SOURCES / "schema" / "pom.xml", SCHEMA_JARS)
    compile_java("schema", SCHEMA_CLASSES, SCHEMA_JARS)


def compile_java(folder: str, classes: Path, jars: Path) -> None:
    """Compile the Java programs of one folder against the jars of another."""
    sources = sorted(str(path) for path in (SOURCES / folder).glob("*.java"))
    shutil.rmtree(classes, ignore_errors=True)
    run("javac", "-Xlint:all,-path", "-Werror", "-d", str(classes), "-cp", f"{jars}/*", *sources)


def prepare_mirror() -> None:
    """Install MirrorMaker in addition to Kafka's broker."""
    prepare("kafka")
    copy_jars(SOURCES / "mirror" / "pom.xml", MIRROR_JARS)


def prepare_go() -> None:
    """Build the test binary of franz-go's client package, and link its sources: some tests read them.

    Build also the program that is run under limits.
    """
    run("go", "mod", "download", cwd=SOURCES / "go")
    GO_SOURCES.unlink(missing_ok=True)
    GO_SOURCES.symlink_to(run("go", "list", "-f", "{{.Dir}}", GO_PACKAGE, cwd=SOURCES / "go").strip())
    run("go", "test", "-mod=readonly", "-c", "-o", str(GO_TEST), GO_PACKAGE, cwd=SOURCES / "go")
    run("go", "build", "-mod=readonly", "-o", str(GO_LIMITED), "./limited", cwd=SOURCES / "go")


def prepare_node() -> None:
    """Install the JavaScript clients next to a copy of the programs, where node looks for them."""
    shutil.rmtree(NODE, ignore_errors=True)
    shutil.copytree(SOURCES / "node", NODE)
    run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=NODE)


def prepare_librdkafka() -> None:
    """Build librdkafka with its test-runner from the sources in its JavaScript binding.

    Without optimisation, which is twice as quick to build. Some of its tests call one of Kafka's commands.
    """
    prepare("java")
    shutil.rmtree(LIBRDKAFKA, ignore_errors=True)
    shutil.copytree(SOURCES / "librdkafka", LIBRDKAFKA)
    run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=LIBRDKAFKA)
    options = ("--no-download", "--disable-curl", "--disable-gssapi", "--disable-optimization")
    run("bash", "configure", *options, cwd=LIBRDKAFKA_SOURCES)
    run("make", "libs", cwd=LIBRDKAFKA_SOURCES)
    run("make", "-C", "tests", "build", cwd=LIBRDKAFKA_SOURCES)
    preload = LIBRDKAFKA_SOURCES / "one_replica.so"
    run("gcc", "-shared", "-fPIC", "-o", str(preload), str(LIBRDKAFKA / "one_replica.c"), "-ldl")


def python_of(part: str) -> Path:
    """Return the interpreter of a part that has an environment of its own."""
    return HOME / part / "bin" / "python"


def prepare_environment(part: str) -> None:
    """Create a virtual environment with the packages of a part's lock file."""
    python = python_of(part)
    if not python.exists():
        run(sys.executable, "-m", "venv", str(python.parent.parent))
    run(str(python), "-m", "pip", "install", "--quiet", "-r", str(SOURCES / part / "requirements.lock"))


def prepare_spark() -> None:
    """Create a virtual environment for PySpark, with the jars of its Kafka connector."""
    prepare_environment("spark")
    copy_jars(SOURCES / "spark" / "pom.xml", SPARK_JARS)


def prepare_python() -> None:
    """Do nothing: these clients are requirements of the tests."""


PREPARE: dict[str, Callable[[], None]] = {
    "java": prepare_java,
    "kafka": prepare_kafka,
    "schema": prepare_schema,
    "mirror": prepare_mirror,
    "go": prepare_go,
    "node": prepare_node,
    "librdkafka": prepare_librdkafka,
    "spark": prepare_spark,
    "python": prepare_python,
    **{part: partial(prepare_environment, part) for part in FRAMEWORKS},
}


def prepare(part: str) -> None:
    """Install one part unless its stamp is up to date. Raises PreparationError when that fails."""
    HOME.mkdir(parents=True, exist_ok=True)
    stamp, wanted = HOME / f"stamp-{part}", stamp_of(part)
    with locked(part):
        if stamp.exists() and stamp.read_text() == wanted:
            return
        stamp.unlink(missing_ok=True)
        print(f"preparing the {part} clients", file=sys.stderr, flush=True)
        PREPARE[part]()
        stamp.write_text(wanted)


def stamp_of(part: str) -> str:
    """Return a digest of everything that the part is made from."""
    digest = hashlib.sha256(str(HOME).encode() + Path(__file__).read_bytes())
    folder = SOURCES / part
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return digest.hexdigest()


@contextmanager
def locked(part: str) -> Iterator[None]:
    """Prevent two test processes from preparing the same part at once; the kernel unlocks when a process dies."""
    descriptor = os.open(HOME / f"lock-{part}", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def main() -> int:
    """Bring the parts that the command line names; returns the exit status."""
    try:
        for part in sys.argv[1:]:
            prepare(part)
    except PreparationError as failure:
        print(f"ops/compat: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
