"""The output of `ops/build`, installed into an empty environment and used as in the README and the pages in docs/."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

from tests.support.deadline import wait_until

REPOSITORY = Path(__file__).parents[2]
INSTALL_S = 600
#: Concurrent with other tests that load the processors.
RUN_S = 270
#: The package's parts, which are directories at the top of the checkout.
ROOMS = ("broker", "shm", "spark", "web")
#: Dependencies of the examples besides the wheel; in the versions that all other tests use.
CLIENTS = ("confluent-kafka", "kafka-python", "pytest", "pytest-xdist")


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    """Return the wheel."""
    assert len(list(dist.glob("*.tar.gz"))) == 1
    [wheel] = dist.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of programs of an environment that has the wheel, and clients."""
    directory = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", directory], check=True, timeout=INSTALL_S)
    pins = [option for name in ("requirements", "requirements-test") for option in ("-c", REPOSITORY / f"{name}.lock")]
    subprocess.run(
        [directory / "bin/python", "-m", "pip", "install", "-q", "--no-compile", *pins, wheel, *CLIENTS],
        check=True,
        timeout=INSTALL_S,
    )
    return directory / "bin"


def run(environment: Path, directory: Path, *command: str, path: str = "") -> str:
    """Run a program of the environment, away from this checkout, and return its output; `path` is PYTHONPATH."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYTEST", "VIRTUAL"))}
    if path:
        clean["PYTHONPATH"] = path
    line = [str(environment / command[0]), *command[1:]]
    try:
        done = subprocess.run(
            line, cwd=directory, env=clean, capture_output=True, text=True, timeout=RUN_S, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise AssertionError(f"it does not end: {late.stdout!r}\n{(late.stderr or b'').decode()}") from None
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_has_everything_and_nothing_else(wheel: Path) -> None:
    top = REPOSITORY / "ops/package"
    rooms = [path for path in (top / "rotunda").iterdir() if path.is_symlink()]
    assert {room.name for room in rooms} == set(ROOMS)
    files = {path for place in (top / "rotunda", *rooms) for path in place.rglob("*") if path.is_file()}
    wanted = {str(path.relative_to(top)) for path in files if "__pycache__" not in path.parts and path.suffix != ".so"}
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names - wanted == {"rotunda/broker/native/compiled.abi3.so"}
    assert not wanted - names


def test_the_size_of_an_installation(wheel: Path) -> None:
    """Its files, without byte code, and its distributions: each adds to the time of pip (install.md)."""
    lines = (REPOSITORY / "requirements.lock").read_text(encoding="utf-8").splitlines()
    names = {line.partition("==")[0] for line in lines if "==" in line} - {"setuptools"}
    with zipfile.ZipFile(wheel) as archive:
        size_bytes = sum(entry.file_size for entry in archive.infolist())
    for name in names:
        files = [each for each in distribution(name).files or [] if each.suffix != ".pyc"]
        size_bytes += sum(Path(str(each.locate())).stat().st_size for each in files)
    assert size_bytes < 140_000_000
    assert len(names) <= 29


def test_one_wheel_is_for_every_python(wheel: Path) -> None:
    assert re.fullmatch(r"rotunda_broker-[\d.]+-cp311-abi3-linux_\w+\.whl", wheel.name)


@pytest.mark.usefixtures("builds_alone")
def test_a_build_without_a_compiler_has_the_twins_alone(tmp_path: Path) -> None:
    environment = {**os.environ, "CC": "false"}
    subprocess.run(
        [REPOSITORY / "ops/build", tmp_path], check=True, capture_output=True, timeout=INSTALL_S, env=environment
    )
    [wheel] = tmp_path.glob("*.whl")
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")]


def examples(page: str) -> list[str]:
    """Return the examples in Python of a page."""
    return re.findall(r"```python\n(.*?)```", (REPOSITORY / page).read_text(), re.DOTALL)


def test_nobody_is_told_to_install_what_pypi_has_by_this_name() -> None:
    pages = [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md"), *(REPOSITORY / "broker").rglob("*.py")]
    by_name = re.compile(r"pip install[^`\n]* '?rotunda(?![-\w])")
    assert not [page.name for page in pages if by_name.search(page.read_text())]


@pytest.mark.slow
def test_the_examples_of_the_readme_and_of_the_producers_page_work_with_what_is_installed(
    environment: Path, tmp_path: Path
) -> None:
    options = ("--run-dir", str(tmp_path / "run"))
    started = run(
        environment, tmp_path, "rotunda", "start", "--daemon", "--wait", "--json", "--data-dir", str(tmp_path / "data"),
        "--listen", "127.0.0.1:0", "--set", "status.port=0", *options,
    )  # fmt: skip
    bootstrap = json.loads(started)["bootstrap"]
    [example] = examples("README.md")
    (tmp_path / "example.py").write_text(example.replace("127.0.0.1:9092", bootstrap).replace("poll(5)", "poll(60)"))
    assert run(environment, tmp_path, "python", "example.py") == "b'three apples'\n"
    assert "orders" in run(environment, tmp_path, "rotunda", "topic", "list", *options)
    for number, example in enumerate(examples("docs/producer.md")):
        ending = "import asyncio\nasyncio.run(main())\n" if "async def main" in example else ""
        (tmp_path / "producer.py").write_text(example.replace("localhost:9092", bootstrap) + ending)
        printed = run(environment, tmp_path, "python", "producer.py")
        assert number or "RecordMetadata(topic='orders', partition=0, offset=1," in printed
    run(environment, tmp_path, "rotunda", "stop", *options)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_examples_of_the_page_about_testing_work_with_what_is_installed(environment: Path, tmp_path: Path) -> None:
    whole = [example for example in examples("docs/testing.md") if example.startswith("from kafka import")]
    for number, example in enumerate(whole):
        (tmp_path / f"test_{number}.py").write_text(example)
    printed = run(
        environment, tmp_path, "pytest", "-q", "-n2", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=60"
    )
    assert f"{len(whole)} passed" in printed
    assert len(whole) == 2


OWN_TEST = """
from kafka import KafkaConsumer, KafkaProducer

import ops, broker, shm, spark, tests, web
from rotunda.broker.testing import RotundaBroker


def test_own_packages_are_there():
    assert {each.OWNER for each in (broker, ops, shm, spark, tests, web)} == {"the project"}


def test_records(rotunda_broker, rotunda_topic):
    assert isinstance(rotunda_broker, RotundaBroker)
    producer = KafkaProducer(bootstrap_servers=rotunda_broker.bootstrap)
    producer.send(rotunda_topic, b"three apples")
    producer.close()
    consumer = KafkaConsumer(rotunda_topic, bootstrap_servers=rotunda_broker.bootstrap, auto_offset_reset="earliest")
    assert next(consumer).value == b"three apples"
    consumer.close()
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_project_may_have_packages_of_the_names_that_ours_have(environment: Path, tmp_path: Path) -> None:
    """They are in the current directory and on PYTHONPATH, of the processes of the broker too."""
    for name in (*ROOMS, "tests", "ops"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text('OWNER = "the project"\n')
    (tmp_path / "tests" / "test_own.py").write_text(OWN_TEST)
    options = ("-q", "-n2", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=60")
    assert "2 passed" in run(environment, tmp_path, "pytest", *options, path=str(tmp_path))
    where = ("--run-dir", str(tmp_path / "run"))
    command = ("python", "-m", "rotunda")
    listen = ("--ephemeral", "--listen", "127.0.0.1:0", "--set", "status.port=0")
    run(environment, tmp_path, *command, "start", "--daemon", "--wait", *listen, *where, path=str(tmp_path))

    def all_run() -> bool:
        status = json.loads(run(environment, tmp_path, *command, "status", "--json", *where, path=str(tmp_path)))
        return {process["state"] for process in status["processes"] if process["role"] != "web"} == {"running"}

    wait_until(all_run, "every process runs")
    run(environment, tmp_path, *command, "stop", *where, path=str(tmp_path))


def test_the_version_and_its_changes(environment: Path, tmp_path: Path) -> None:
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    assert run(environment, tmp_path, "rotunda", "--version") == f"rotunda {version}, follows Apache Kafka 4.4\n"
    assert re.findall(r"^## (.*)$", (REPOSITORY / "CHANGELOG.md").read_text(), re.MULTILINE)[0] == version
