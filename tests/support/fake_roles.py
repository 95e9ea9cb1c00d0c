"""A broker whose processors, handlers and controller only stay alive, for tests of the surrounding processes.

python -m tests.support.fake_roles RUN_DIR DATA_DIR [KEY=VALUE ...]

The real supervisor and the real acceptor run. A processor accepts connections and responds to every read with its own
number and generation. Faults of a role are set in the environment: FAULT=boot:handler, or crash, deaf, code, hold: not
ready until the run directory holds a file `go`, full-disk: it cannot start while that holds a file `full`.
FAULT=full:processor accepts no connections, FAULT=retire:recorder exits for a replacement, FAULT=hang:handler stops the
loop of the first of each, and with FAULT=serve:handler each has served a request when it is ready.
"""

import os
import select
import signal
import sys
from pathlib import Path

from rotunda.broker.clock import SystemClock
from rotunda.broker.config.broker_config import load
from rotunda.broker.errors import BootFailed
from rotunda.broker.ipc.process_context import ProcessContext
from rotunda.broker.network.acceptor import acceptor_process
from rotunda.broker.network.handoff import HandoffReceiver
from rotunda.broker.runtime.child_process import Retired, Role
from rotunda.broker.runtime.signals import StopFlag
from rotunda.broker.server_log.log_file import LogOutput
from rotunda.broker.supervisor.broker_main import serve
from rotunda.shm.tables.process_slots import BEAT_S
from tests.support.deadline import wait_until


def main(arguments: list[str]) -> int:
    sets = dict(text.split("=", 1) for text in arguments[2:])
    fixed = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": arguments[1], "status.page.enable": "false"}
    config = load(None, {**fixed, "max.partitions": "64", **sets}, {})
    functions = {
        Role.ACCEPTOR: acceptor_process.run,
        Role.PROCESSOR: processor,
        Role.HANDLER: target,
        Role.CONTROLLER: target,
        Role.CLEANER: target,
        Role.RECORDER: recorder,
    }
    try:
        serve(config, Path(arguments[0]), LogOutput(), lambda record: print(record.bootstrap, flush=True), functions)
    except BootFailed as failure:
        print(failure, file=sys.stderr)
        return failure.exit_code
    return 0


def processor(context: ProcessContext, index: int, generation: int, stop: StopFlag) -> None:
    misbehave("processor", context, stop)
    receiver = HandoffReceiver(context.handoff[index][1])
    receiver.hello(generation)
    bell = context.processor_bells[index]
    clients = {}
    poll = select.poll()
    for fd in (bell.fileno(), stop.fileno()):
        poll.register(fd, select.POLLIN)
    if os.environ.get("FAULT") != "full:processor":
        poll.register(receiver.fileno(), select.POLLIN)
    context.mark_ready(Role.PROCESSOR, index, generation)
    while not stop.is_set():
        context.slots.beat(Role.PROCESSOR, index, SystemClock.monotonic_ns())
        for fd, _ in poll.poll(BEAT_S * 1000):
            if fd == bell.fileno():
                bell.drain()
            elif fd == receiver.fileno():
                for new in receiver.receive_some():
                    clients[new.socket.fileno()] = new
                    poll.register(new.socket, select.POLLIN)
            elif fd in clients:
                new = clients[fd]
                if new.socket.recv(64):
                    new.socket.sendall(f"{index}.{generation}\n".encode())
                else:
                    poll.unregister(fd)
                    new.socket.close()
                    receiver.report_closed(clients.pop(fd).serial)
        receiver.flush()


def target(context: ProcessContext, index: int, generation: int, stop: StopFlag) -> None:
    behind = {context.controller: (Role.CONTROLLER, 0), context.cleaner: (Role.CLEANER, 0)}
    role, number = behind.get(index, (Role.HANDLER, index))
    misbehave(role.label, context, stop)
    if os.environ.get("FAULT") == f"serve:{role.label}":
        context.channel.request_consumer(0, index).release_to(8 * generation)
    context.mark_ready(role, number, generation)
    hangs = os.environ.get("FAULT") == f"hang:{role.label}" and generation == 1
    while not stop.is_set():
        if not hangs:
            context.slots.beat(role, number, SystemClock.monotonic_ns())
        context.target_bells[index].wait(BEAT_S)


def recorder(context: ProcessContext, index: int, generation: int, stop: StopFlag) -> None:
    misbehave("recorder", context, stop)
    context.mark_ready(Role.RECORDER, index, generation)
    if os.environ.get("FAULT") == "retire:recorder" and generation == 1:
        raise Retired
    while not stop.is_set():
        context.slots.beat(Role.RECORDER, index, SystemClock.monotonic_ns())
        context.recorder_bell.wait(BEAT_S)


def misbehave(role: str, context: ProcessContext, stop: StopFlag) -> None:
    fault, _, who = os.environ.get("FAULT", "").partition(":")
    if who != role:
        return
    if fault == "boot":
        raise BootFailed("the disk is made of cheese")
    if fault == "full-disk" and (context.run_dir / "full").exists():
        raise BootFailed("no space left")
    if fault == "code":
        raise BootFailed("data from tomorrow", 5)
    if fault == "crash":
        raise ZeroDivisionError("no reason at all")
    if fault == "hold":
        wait_until((context.run_dir / "go").exists, "the test lets it go on")
    if fault == "deaf":
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        stop.obey_sigterm()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
