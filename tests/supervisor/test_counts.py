"""The supervisor adjusts the number of processors to the setting, with deaths at any moment (`A28`)."""

import os
import signal
from pathlib import Path

from rotunda.shm.control import BrokerWords, ControlSegment
from rotunda.shm.segment import attach
from tests.support.deadline import wait_until
from tests.support.supervised import Supervised, ask


def words_of(broker: Supervised) -> BrokerWords:
    """Return the words of a running broker; the test writes as its controller would."""
    status = broker.status()
    view = attach(f"/rotunda-{status['instance']}-control", writable=True).view
    return ControlSegment(
        view, status["most_processors"], status["most_handlers"], status["max_partitions"]
    ).broker_words


def processors(broker: Supervised) -> list[tuple[int, str]]:
    return [(each["index"], each["state"]) for each in broker.status()["processes"] if each["role"] == "processor"]


def want(broker: Supervised, count: int) -> None:
    words_of(broker).set_wanted_processors(count)
    os.kill(broker.process.pid, signal.SIGUSR2)


def test_a28_one_that_cannot_boot_leaves_the_number_as_it_is(tmp_path: Path) -> None:
    """It is tried again after another number has been set."""
    with Supervised(tmp_path, fault="full-disk:processor", num_network_threads=1) as broker:
        broker.complete()
        full = broker.run_dir / "full"
        full.touch()
        want(broker, 2)
        wait_until(lambda: "the number of processors stays 1, not 2" in broker.log.read_text(), "the line in the log")
        assert processors(broker) == [(0, "running"), (1, "dead")] or processors(broker) == [(0, "running")]
        with broker.connect() as client:
            assert ask(client) == "0.1"
        full.unlink()
        for _ in range(2):
            # When it has acted on the second signal, it has looked at the number after the first.
            seen = broker.log.read_text().count("SIGUSR2")
            want(broker, 1)
            wait_until(lambda seen=seen: broker.log.read_text().count("SIGUSR2") > seen, "the supervisor has turned")
        want(broker, 2)
        wait_until(lambda: processors(broker) == [(0, "running"), (1, "running")], "the second is tried again")
        assert broker.terminate() == 0


def test_a28_one_that_is_killed_while_it_boots_is_replaced(tmp_path: Path) -> None:
    with Supervised(tmp_path, fault="hold:processor", num_network_threads=1) as broker:
        wait_until((tmp_path / "run").exists, "the run directory")
        go = broker.run_dir / "go"
        go.touch()
        broker.complete()
        go.unlink()
        want(broker, 2)
        first = wait_until(lambda: len(processors(broker)) == 2 and broker.slot("processor", 1)["pid"], "it boots")
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: broker.slot("processor", 1)["generation"] == 2, "it is replaced")
        go.touch()
        wait_until(lambda: words_of(broker).processors == 2, "it joins")
        homes = set()
        for _ in range(4):
            with broker.connect() as client:
                homes.add(ask(client))
        assert homes == {"0.1", "1.2"}
        assert broker.terminate() == 0


def test_a28_a_stop_in_the_middle_is_clean(tmp_path: Path) -> None:
    with Supervised(tmp_path, num_network_threads=2) as broker:
        broker.complete()
        want(broker, 4)
        wait_until(lambda: words_of(broker).processors >= 3, "one more")
        want(broker, 2)
        assert broker.terminate() == 0
        assert not broker.shared_memory()
