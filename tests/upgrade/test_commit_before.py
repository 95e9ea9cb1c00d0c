"""A data directory passes from the commit before to this one and back, as in operations.md."""

import subprocess
import sys
from pathlib import Path

import pytest

from rotunda.broker.metadata.store.metadata_file import FORMAT
from tests.support.broker_process import REPOSITORY, BrokerProcess
from tests.upgrade.content import SETTINGS, assert_is_served, records, write_more
from tests.upgrade.make_directory import TOPICS, broker_of, write


@pytest.fixture(scope="module")
def commit_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the files of the commit before."""
    directory = tmp_path_factory.mktemp("before")
    archive = directory / "files.tar"
    done = subprocess.run(["git", "archive", "--output", archive, "HEAD^"], cwd=REPOSITORY, check=False)
    if done.returncode:
        pytest.skip("this checkout has no history")
    subprocess.run(["tar", "-x", "-f", archive, "-C", directory], check=True)
    return directory


def of_code(checkout: Path, expression: str) -> str:
    """Return the value of an expression in the code of a checkout."""
    program = f"import rotunda; from rotunda.broker.metadata.store.metadata_file import FORMAT; print({expression})"
    environment = {"PYTHONPATH": str(checkout / "ops" / "package")}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.slow
def test_a_directory_of_the_commit_before_is_upgraded_and_downgraded(
    commit_before: Path, broker_directory: Path
) -> None:
    """The command of this commit manages the broker of the commit before."""
    assert str(commit_before) in of_code(commit_before, "rotunda.__file__")
    content = write(commit_before, broker_directory, SETTINGS)
    broker = BrokerProcess(broker_directory, SETTINGS, ephemeral=False).start()
    try:
        assert_is_served(broker, content)
        write_more(broker.bootstrap, "more")
        content["records"] = {topic: records(broker.bootstrap, topic, count) for topic, count in partitions().items()}
        content["settings"]["more"] = {}
    finally:
        broker.stop()
    downgraded = broker_of(commit_before, broker_directory, SETTINGS)
    if int(of_code(commit_before, "FORMAT")) < FORMAT:
        with pytest.raises(AssertionError, match="ended with exit status 5"):
            downgraded.start()
        return
    downgraded.start()
    try:
        assert_is_served(downgraded, content)
        write_more(downgraded.bootstrap, "still-more")
    finally:
        downgraded.stop()


def partitions() -> dict[str, int]:
    """Return the number of partitions of each topic that a directory has in the end."""
    return {"more": 1, **{topic: count for topic, (count, _) in TOPICS.items()}}
