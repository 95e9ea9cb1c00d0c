"""The supervisor with real processes: start, replacement, stop, and clean-up."""

import os
import re
import signal
import socket
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path

import psutil
import pytest

from rotunda.broker.cli.main import main
from rotunda.broker.log.data_dir import remove_clean_shutdown_mark
from rotunda.broker.network.handoff import QUEUE_SOCKETS
from rotunda.broker.runtime import run_dir
from rotunda.shm.tables.process_slots import ACCEPTOR
from tests.support.broker_process import is_alive
from tests.support.command_line import command
from tests.support.deadline import wait_until
from tests.support.supervised import Supervised, ask

TWO = {"listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT"}
ROLES = ("acceptor", "processor", "handler", "controller", "cleaner")


def test_starts_every_role_and_stops_without_a_trace(tmp_path: Path) -> None:
    with Supervised(tmp_path, num_network_threads=2, num_io_threads=2) as broker:
        broker.complete()
        status = broker.status()
        seen = [(each["role"], each["index"], each["state"], each["restarts"]) for each in status["processes"]]
        assert seen == [
            ("supervisor", 0, "running", 0),
            ("acceptor", 0, "running", 0),
            ("processor", 0, "running", 0),
            ("processor", 1, "running", 0),
            ("handler", 0, "running", 0),
            ("handler", 1, "running", 0),
            ("controller", 0, "running", 0),
            ("cleaner", 0, "running", 0),
            ("recorder", 0, "running", 0),
            ("web", 0, "empty", 0),
        ]
        assert status["pid"] == broker.process.pid
        assert status["bootstrap"] == f"127.0.0.1:{broker.port}"
        assert status["data_dir"] == str(tmp_path / "data")
        children = broker.children()
        assert len(children) == 8
        assert broker.shared_memory()
        assert broker.terminate() == 0
        assert not broker.shared_memory()
        assert not any(child.is_running() for child in children)
        assert not (broker.run_dir / "broker.json").exists()
        with pytest.raises(ConnectionRefusedError):
            broker.connect()


def test_no_semaphore_has_a_name_while_the_broker_runs(tmp_path: Path) -> None:
    with Supervised(tmp_path) as broker:
        broker.ready()
        assert {path.name.rpartition("-")[2] for path in broker.shared_memory()} == {
            "control",
            "quotas",
            "rings",
            "arena",
            "metrics",
            "recorder",
            "snapshots",
            "recent",
        }


@pytest.mark.parametrize("role", ROLES)
def test_a_killed_child_is_replaced(tmp_path: Path, role: str) -> None:
    with Supervised(tmp_path) as broker:
        first = broker.complete().slot(role)
        os.kill(first["pid"], signal.SIGKILL)
        second = wait_until(
            lambda: next((s for s in [broker.slot(role)] if s["restarts"] and s["state"] == "running"), None),
            f"the {role} is replaced",
        )
        assert second["pid"] != first["pid"]
        assert (second["restarts"], second["generation"], second["exit_status"]) == (1, 2, -signal.SIGKILL)
        with broker.connect() as client:
            assert ask(client) == ("0.2" if role == "processor" else "0.1")
        assert broker.terminate() == 0
        assert not broker.shared_memory()


@pytest.mark.parametrize("role", ["processor", "handler", "controller", "cleaner", "recorder"])
def test_a_child_that_is_killed_while_it_boots_is_replaced(tmp_path: Path, role: str) -> None:
    with Supervised(tmp_path, fault=f"hold:{role}") as broker:
        wait_until(lambda: run_dir.read(broker.run_dir), "the run directory names the broker")
        first = wait_until(lambda: broker.slot(role)["pid"], f"the {role} boots")
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: broker.slot(role)["generation"] == 2, "it is replaced")
        (broker.run_dir / "go").touch()
        broker.complete()
        wait_until(lambda: broker.slot(role)["state"] == "running", f"the {role} runs")
        assert broker.terminate() == 0


@pytest.mark.parametrize("role", ["handler", "controller", "recorder"])
def test_a_replacement_that_cannot_boot_is_tried_again(tmp_path: Path, role: str) -> None:
    with Supervised(tmp_path, fault=f"full-disk:{role}", process_restart_limit=1000) as broker:
        broker.complete()
        (broker.run_dir / "full").touch()
        os.kill(broker.slot(role)["pid"], signal.SIGKILL)
        wait_until(
            lambda: "could not start: no space left; replacing it" in broker.log.read_text(), "the log has the reason"
        )
        (broker.run_dir / "full").unlink()
        wait_until(lambda: broker.slot(role)["state"] == "running", f"the {role} runs")
        assert broker.terminate() == 0


def test_one_that_makes_room_for_another_has_not_failed(tmp_path: Path) -> None:
    """The exit status is recorded for failures only."""
    with Supervised(tmp_path, fault="retire:recorder") as broker:
        broker.complete()
        wait_until(lambda: broker.slot("recorder")["generation"] == 2, "the recorder makes room")
        slot = broker.slot("recorder")
        assert (slot["restarts"], slot["exit_status"], slot["last_error"]) == (0, 0, "")


def test_connections_outlive_every_process_but_their_processor(tmp_path: Path) -> None:
    with Supervised(tmp_path, num_network_threads=2) as broker:
        broker.complete()
        clients = [broker.connect() for _ in range(4)]
        homes = [ask(client) for client in clients]
        assert sorted(homes) == ["0.1", "0.1", "1.1", "1.1"]
        for role in ("acceptor", "handler", "controller", "cleaner", "processor"):
            pid = broker.slot(role)["pid"]
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda role=role: broker.slot(role)["generation"] == 2, f"{role} is replaced")
            wait_until(lambda role=role: broker.slot(role)["state"] == "running", f"{role} is back")
            if role != "processor":
                assert [ask(client) for client in clients] == homes
        for client, home in zip(clients, homes, strict=True):
            if home == "1.1":
                assert ask(client) == home
            else:
                assert _is_closed(client)
        for client in clients:
            client.close()


def _is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_killing_the_supervisor_ends_its_children_and_the_next_start_removes_the_rest(tmp_path: Path) -> None:
    with Supervised(tmp_path) as broker:
        broker.ready()
        children = broker.children()
        broker.process.kill()
        broker.process.wait()
        wait_until(lambda: not any(is_alive(child) for child in children), "the children have ended")
        left = broker.shared_memory()
        assert left
        with Supervised(tmp_path) as second:
            second.ready()
            assert not any(path.exists() for path in left)
            assert second.terminate() == 0


@pytest.mark.parametrize("role", ["processor", "handler", "controller"])
def test_a_child_that_cannot_boot_stops_the_start_with_its_reason(tmp_path: Path, role: str) -> None:
    with Supervised(tmp_path, fault=f"boot:{role}") as broker:
        assert broker.wait() == 1
        log = broker.log.read_text()
        assert "could not start: the disk is made of cheese" in log
        assert role in log
        assert not broker.shared_memory()


def test_a_child_that_fails_before_it_is_ready_stops_the_start(tmp_path: Path) -> None:
    with Supervised(tmp_path, fault="crash:handler") as broker:
        assert broker.wait() == 1
        assert "ZeroDivisionError: no reason at all at fake_roles.py:" in broker.log.read_text()


def test_the_exit_code_of_a_boot_failure_is_the_brokers(tmp_path: Path) -> None:
    with Supervised(tmp_path, fault="code:controller") as broker:
        assert broker.wait() == 5


def test_too_many_restarts_stop_the_broker_with_a_reason_in_log_and_status(tmp_path: Path) -> None:
    with Supervised(tmp_path, process_restart_limit=2) as broker:
        broker.ready()
        kill_generations(broker, "handler", 3)
        assert broker.wait() == 1
        assert "it died 3 times within 60000 ms, above process.restart.limit" in broker.log.read_text()
        assert not broker.shared_memory()
        done = command("status", "--run-dir", str(broker.run_dir))
        assert done.returncode == 3
        assert "killed by SIGKILL; it died 3 times" in done.stdout


def kill_generations(broker: Supervised, role: str, most: int) -> None:
    """Kill each of the first processes of a role as soon as it is ready."""
    for generation in range(1, most + 1):

        def killed(generation: int = generation) -> bool:
            slot = broker.slot(role)
            if slot["generation"] != generation or not slot["ready"]:
                return False
            # A process may be ready before the supervisor has written down which it is.
            with suppress(ProcessLookupError):
                os.kill(slot["pid"], signal.SIGKILL)
                return True
            return False

        wait_until(killed, f"generation {generation} runs")


def test_a_cleaner_that_dies_too_often_is_replaced_more_slowly(tmp_path: Path) -> None:
    """The broker does not stop, though it be idle: twice in a minute at once, then every half a minute."""
    with Supervised(tmp_path, process_restart_limit=2) as broker:
        broker.complete()
        kill_generations(broker, "cleaner", 3)
        often = re.compile(r"cleaner .* dies too often \(process.restart.limit\), so it is replaced in (2\d|30)\.\d s")
        wait_until(lambda: often.search(broker.log.read_text()), "the log has the wait")
        assert broker.slot("cleaner")["state"] == "dead"
        with broker.connect() as client:
            assert ask(client)
        broker.terminate()


def test_clients_do_not_wait_for_who_dies_too_often(tmp_path: Path) -> None:
    """It is started again half a second after it was started last, however often it dies."""
    with Supervised(tmp_path, fault="serve:handler", process_restart_limit=1) as broker:
        broker.ready()
        kill_generations(broker, "handler", 8)
        wait_until(lambda: broker.slot("handler")["generation"] == 9, "the last replacement")
        waits_s = [float(each) for each in re.findall(r"so it is replaced in (\d+\.\d) s", broker.log.read_text())]
        assert all(wait_s <= 0.5 for wait_s in waits_s), waits_s
        assert broker.terminate() == 0


def test_the_replacement_that_had_to_wait_comes(tmp_path: Path) -> None:
    settings = {"process_restart_limit": 2, "process_restart_window_ms": 1000}
    with Supervised(tmp_path, fault="serve:handler", **settings) as broker:
        broker.ready()
        for _ in range(12):
            slot = wait_until(
                lambda: next((s for s in [broker.slot("handler")] if s["state"] == "running"), None), "a handler runs"
            )
            os.kill(slot["pid"], signal.SIGKILL)
            wait_until(lambda pid=slot["pid"]: broker.slot("handler")["pid"] != pid, "it is replaced")
            if "it dies too often" in broker.log.read_text():
                break
        wait_until(lambda: broker.slot("handler")["state"] == "running", "a handler runs")
        assert broker.terminate() == 0


def test_a_child_that_does_not_turn_is_named_killed_and_replaced(tmp_path: Path) -> None:
    with Supervised(tmp_path, fault="hang:handler", process_hang_timeout_ms=6000) as broker:
        text = ["status", "--run-dir", str(broker.run_dir)]

        def hangs() -> bool:
            """Return whether the command, run in this process because time is short, reports it."""
            with redirect_stdout(StringIO()) as printed:
                main(text)
            return re.search(r"hangs \d+ s", printed.getvalue()) is not None

        # The handler hangs from when it is ready: the command is loaded while the broker starts.
        hangs()
        first = broker.ready().slot("handler")
        wait_until(hangs, "it has been silent")
        wait_until(lambda: broker.slot("handler")["generation"] == 2, "it is replaced")
        log = broker.log.read_text()
        assert re.search(rf"handler 0 \(pid {first['pid']}\) has been hanging for \d+ s: it is running or asleep", log)
        assert f"stacks of handler-{first['pid']}: " in log
        assert "killing it (process.hang.timeout.ms)" in log
        assert broker.terminate() == 0


def test_without_its_recorder_the_broker_goes_on(tmp_path: Path) -> None:
    with Supervised(tmp_path, process_restart_limit=2) as broker:
        broker.complete()
        kill_generations(broker, "recorder", 3)
        wait_until(lambda: "continues without its request log" in broker.log.read_text(), "the line in the log")
        with broker.connect() as client:
            assert ask(client) == "0.1"
        assert broker.slot("recorder")["state"] == "dead"
        assert broker.terminate() == 0


def test_a_child_that_does_not_stop_in_time_is_killed(tmp_path: Path) -> None:
    with Supervised(tmp_path, fault="deaf:handler", shutdown_timeout_ms=300) as broker:
        broker.ready()
        assert broker.terminate() == 0
        assert "handler 0 did not stop in time: killing it" in broker.log.read_text()
        assert not broker.shared_memory()


def test_a_second_signal_makes_a_stop_quick(tmp_path: Path) -> None:
    with Supervised(tmp_path, fault="deaf:handler", shutdown_timeout_ms=600_000) as broker:
        broker.ready()
        broker.process.send_signal(signal.SIGTERM)
        wait_until(lambda: broker.status()["state"] == "stopping", "it stops")
        assert broker.terminate(signal.SIGINT) == 0


def test_sigint_to_the_whole_group_stops_in_order(tmp_path: Path) -> None:
    with Supervised(tmp_path) as broker:
        broker.ready()
        children = broker.children()
        for child in children:
            child.send_signal(signal.SIGINT)
        assert broker.terminate(signal.SIGINT) == 0
        assert "replacing" not in broker.log.read_text()


def test_a_stop_asked_during_the_start_is_obeyed(tmp_path: Path) -> None:
    with Supervised(tmp_path, fault="deaf:nobody") as broker:
        wait_until(lambda: (broker.run_dir / "broker.json").exists() or broker.process.poll(), "it starts")
        wait_until(lambda: len(broker.children()) > 0, "it has children")
        assert broker.terminate() == 0
        assert not broker.shared_memory()


def test_a_run_directory_in_use_is_exit_code_4(tmp_path: Path) -> None:
    with Supervised(tmp_path) as broker:
        broker.ready()
        with Supervised(tmp_path) as second:
            assert second.wait() == 4
            assert f"pid {broker.process.pid}" in second.log.read_text()
        assert broker.status()["pid"] == broker.process.pid


def test_a_data_directory_in_use_is_exit_code_4(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "data").symlink_to(tmp_path / "data")
    with Supervised(tmp_path) as broker:
        broker.ready()
        with Supervised(other) as second:
            assert second.wait() == 4


def test_a_port_in_use_is_exit_code_4(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with Supervised(tmp_path, listeners=f"PLAINTEXT://127.0.0.1:{port}") as broker:
            assert broker.wait() == 4
            assert "in use" in broker.log.read_text()
            assert not broker.shared_memory()


def test_an_open_port_means_ready(tmp_path: Path) -> None:
    """`A02`: the port is bound early and refuses until every process can serve."""
    with Supervised(tmp_path, fault="hold:handler") as broker:
        record = wait_until(lambda: run_dir.read(broker.run_dir), "the port is known")
        assert record.state == run_dir.STARTING
        port = int(record.bootstrap.rpartition(":")[2])
        wait_until(lambda: len(broker.children()) == 3, "all targets and processors run")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        (broker.run_dir / "go").touch()
        assert broker.ready().port == port
        with broker.connect() as client:
            assert ask(client) == "0.1"


@pytest.mark.parametrize("role", ["processor", "handler", "controller"])
def test_a03_the_acceptor_starts_last_when_all_others_can_serve(tmp_path: Path, role: str) -> None:
    with Supervised(tmp_path, fault=f"hold:{role}") as broker:
        wait_until(lambda: run_dir.read(broker.run_dir), "the run directory names the broker")
        wait_until(lambda: broker.slot(role)["state"] == "starting", f"the {role} boots")
        others = [each for each in ("processor", "handler", "controller") if each != role]
        wait_until(lambda: all(broker.slot(each)["ready"] for each in others), "the others can serve")
        assert broker.slot("acceptor")["pid"] == 0
        (broker.run_dir / "go").touch()
        broker.ready()
        assert broker.slot("acceptor")["state"] == "running"


@pytest.mark.parametrize("role", ["cleaner", "recorder"])
def test_the_broker_is_ready_without_those_who_response_nobody(tmp_path: Path, role: str) -> None:
    """They start late, and run at low priority: a start that waited for them would wait for everything else."""
    with Supervised(tmp_path, fault=f"hold:{role}") as broker:
        broker.ready()
        with broker.connect() as client:
            assert ask(client) == "0.1"
        assert broker.slot(role)["state"] != "running"
        (broker.run_dir / "go").touch()
        broker.complete()
        assert broker.terminate() == 0


def test_one_that_starts_late_and_cannot_boot_stops_the_broker_with_its_reason(tmp_path: Path) -> None:
    with Supervised(tmp_path, fault="boot:recorder") as broker:
        assert broker.wait() == 1
        assert "recorder" in broker.log.read_text()
        assert "could not start: the disk is made of cheese" in broker.log.read_text()


def test_a03_one_port_that_cannot_be_bound_fails_the_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with Supervised(tmp_path, listeners=f"PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:{port}", **TWO) as broker:
            assert broker.wait() == 4
            assert f"127.0.0.1:{port}" in broker.log.read_text()
            assert not broker.shared_memory()


def test_a03_a_start_that_is_told_to_stop_never_opens_its_port(tmp_path: Path) -> None:
    with Supervised(tmp_path, fault="hold:handler") as broker:
        record = wait_until(lambda: run_dir.read(broker.run_dir), "the port is known")
        wait_until(lambda: broker.slot("controller")["ready"], "all but the handler can serve")
        broker.process.send_signal(signal.SIGTERM)
        (broker.run_dir / "go").touch()
        assert broker.wait() == 0
        assert "ready" not in broker.log.read_text().split()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(record.bootstrap.rpartition(":")[2])))


def test_a01_one_acceptor_and_the_same_processors_serve_every_listener(tmp_path: Path) -> None:
    """Processors are numbered in one sequence, and alternate over the listeners, not within each."""
    listeners = "PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:0"
    with Supervised(tmp_path, listeners=listeners, num_network_threads=3, **TWO) as broker:
        broker.ready()
        processes = broker.status()["processes"]
        assert [each["index"] for each in processes if each["role"] == "acceptor"] == [0]
        assert [each["index"] for each in processes if each["role"] == "processor"] == [0, 1, 2]
        clients, homes = [], []
        for number in range(6):
            clients.append(broker.connect(broker.ports[number % 2]))
            homes.append(ask(clients[-1]))
        assert homes == ["0.1", "1.1", "2.1"] * 2
        for client in clients:
            client.close()


@pytest.mark.parametrize(
    ("deaf", "ended", "running"),
    [
        ("processor", ["acceptor", "cleaner"], ["handler", "controller"]),
        # No connection waits for it: on a busy machine it may be the slowest process.
        ("cleaner", ["acceptor", "processor"], ["handler", "controller"]),
        ("handler", ["acceptor", "processor", "cleaner"], ["controller"]),
        ("recorder", ["acceptor", "processor", "cleaner", "handler", "controller"], []),
    ],
)
def test_e05_connections_end_before_handlers_and_the_controller_is_last(
    tmp_path: Path, deaf: str, ended: list[str], running: list[str]
) -> None:
    """Each stage waits for the one before it: a process that ignores the stop delays the following ones.

    The logs of a killed process have to be recovered at the next start; the recorder has none.
    """
    with Supervised(tmp_path, fault=f"deaf:{deaf}", shutdown_timeout_ms=600_000) as broker:
        broker.complete()
        broker.process.send_signal(signal.SIGTERM)
        wait_until(lambda: all(broker.slot(role)["state"] == "stopped" for role in ended), "the first ones stopped")
        assert {broker.slot(role)["state"] for role in (deaf, *running)} == {"running"}
        assert broker.terminate(signal.SIGINT) == 0
    assert remove_clean_shutdown_mark(tmp_path / "data") is (deaf == "recorder")


def test_a31_a_stop_does_not_hang_on_full_queues(tmp_path: Path) -> None:
    """The processor accepts nothing: its queue is full, one connection is held, the rest is in the backlog."""
    with Supervised(tmp_path, fault="full:processor") as broker:
        broker.ready()
        clients = [broker.connect() for _ in range(QUEUE_SOCKETS + 5)]
        accepted = QUEUE_SOCKETS + 1
        wait_until(lambda: broker.metric(ACCEPTOR, "connections_accepted", "0") == accepted, "the queue is full")
        assert broker.terminate() == 0
        for client in clients:
            assert _is_closed(client)
            client.close()
        assert "killed" not in broker.log.read_text()
        assert not broker.shared_memory()


def test_children_hold_no_descriptor_that_is_not_theirs(tmp_path: Path) -> None:
    with Supervised(tmp_path, num_network_threads=2) as broker:
        broker.ready()
        for role in ("processor", "handler", "controller"):
            held = psutil.Process(broker.slot(role)["pid"]).net_connections("inet")
            assert held == [], f"{role} holds {held}"
