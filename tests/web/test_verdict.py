"""The verdict on waiting requests: down processes first, then full queues, then processes without spare time."""

from rotunda.web.facts.status import Group, Member, Process, Processor, Ring, Target
from rotunda.web.facts.verdict import not_ready, remarks, verdict


def process(role: str, index: int = 0, *, serves: bool = True, silent_s: float | None = 0.1) -> Process:
    return Process(
        role=role, index=index, pid=1, state="running" if serves else "dead", serves=serves, generation=1, restarts=0,
        exit_status=0, last_error="", silent_s=silent_s, cpu=None, pss_bytes=None, threads=None, descriptors=None,
    )  # fmt: skip


def processor(index: int = 0, idle: float | None = 1.0, arena_used: int = 0, held_back: int = 0) -> Processor:
    return Processor(
        index=index, idle=idle, requests_per_s=None, bytes_in_per_s=None, bytes_out_per_s=None, connections=0,
        arena_used_bytes=arena_used, arena_bytes=100, mutes_per_s={}, requests_kept_bytes=0,
        answers_unwritten_bytes=0, answers_held_back=held_back,
    )  # fmt: skip


def target(index: int = 0, idle: float | None = 1.0, throttle_ms: int = 0) -> Target:
    return Target(
        index=index, idle=idle, requests_per_s=None, errors_per_s=None, records_per_s=None, bytes_per_s=None,
        commits_per_s=None, parked_per_s=None, overload_throttle_ms=throttle_ms,
    )  # fmt: skip


def ring(kind: str, fill: float, at: int = 0) -> Ring:
    return Ring(
        kind=kind, processor=0, target=at, used_bytes=int(100 * fill), capacity_bytes=100, frames=7, fill=fill
    )  # fmt: skip


TARGETS = [target(0), target(1), target(0)]


def test_without_trouble_the_verdict_is_that_nothing_waits():
    found = verdict([processor()], TARGETS, [ring("request", 0.01)], [process("handler")])
    assert (found.level, found.where) == ("calm", [])


def test_what_is_down_comes_first():
    processes = [process("handler", 1, serves=False), process("web", serves=False)]
    found = verdict([processor(idle=0.0)], TARGETS, [ring("request", 0.9)], processes)
    assert (found.level, found.where) == ("stuck", ["handler-1"])
    assert "handler 1" in found.text
    assert "web" not in found.text, "the page's own process is none of the broker's trouble"


def test_clients_are_served_without_what_stands_beside_the_path_of_a_request():
    """Row 29: a probe must not remove a broker whose recorder has just been replaced."""
    beside = [process(role, serves=False) for role in ("recorder", "cleaner", "web")]
    assert not_ready([*beside, process("handler")], is_draining=False) == []
    assert not_ready([process("handler", 1, serves=False)], is_draining=False) == ["handler 1 is dead"]
    assert not_ready([process("handler")], is_draining=True) == ["the broker is shutting down"]


def test_d23_an_overloaded_handler_is_named_with_the_throttle_time():
    targets = [target(0), target(1, throttle_ms=40), target(0)]
    found = verdict([processor()], targets, [ring("request", 0.9)], [process("handler")])
    assert (found.level, found.where) == ("busy", ["handler-1"])
    assert "handler 1. Clients are throttled by 40 ms" in found.text


def test_d22_responses_that_are_held_back_are_counted_with_where_they_wait():
    found = verdict([processor(0), processor(1, held_back=3)], TARGETS, [], [process("handler")])
    assert (found.level, found.where) == ("busy", ["processor-1"])
    assert found.text.startswith("3 delayed responses: to clients that repeat failing requests")


def test_a_process_that_hangs_is_named_with_what_waits_for_it():
    found = verdict([processor()], TARGETS, [ring("request", 0.0, at=1)], [process("handler", 1, silent_s=5.2)])
    assert (found.level, found.where) == ("stuck", ["handler-1"])
    assert found.text == "Handler 1 has been hanging for 5 s with 7 waiting requests."
    elsewhere = [ring("request", 0.0, at=0)]
    found = verdict([processor()], TARGETS, elsewhere, [process("handler", 1, silent_s=60)])
    assert (found.level, found.text) == ("stuck", "Handler 1 has been hanging for 60 s.")
    assert verdict([processor()], TARGETS, elsewhere, [process("processor", silent_s=60)]).where == ["processor-0"]


def test_a_process_that_hangs_is_a_reason_unless_clients_are_served_without_it():
    for role in ("acceptor", "processor", "handler", "controller"):
        hanging = [process(role, silent_s=2.1)]
        assert not_ready(hanging, is_draining=False)[0].endswith(" has been hanging for 2 s")
        assert remarks(hanging) == []
    for role in ("supervisor", "cleaner", "recorder", "web"):
        hanging = [process(role, silent_s=2.1)]
        assert not_ready(hanging, is_draining=False) == []
        assert remarks(hanging)[0].startswith(f"{role} has been hanging for 2 s: ")
        found = verdict([processor()], TARGETS, [], [*hanging, process("handler")])
        assert (found.level, found.where) == ("busy", [f"{role}-0"])
        assert "clients are served" in found.text


def test_one_that_clients_wait_for_comes_first():
    found = verdict(
        [processor()], TARGETS, [], [process("supervisor", silent_s=9.0), process("acceptor", silent_s=3.0)]
    )
    assert found.where == ["acceptor-0"]


def test_what_is_being_replaced_does_not_hang():
    assert not_ready([process("handler", serves=False, silent_s=9.0)], is_draining=False) == ["handler 0 is dead"]


def test_the_fullest_ring_is_named():
    found = verdict([processor()], TARGETS, [ring("request", 0.2), ring("request", 0.63, at=1)], [])
    assert found.where == ["ring-0-1"]
    assert "Handler 1 has a queue of 7 requests" in found.text
    assert "63%" in found.text


def test_the_last_target_is_the_controller():
    assert "The controller" in verdict([processor()], TARGETS, [ring("request", 0.5, at=2)], []).text


def test_responses_and_the_recorder():
    assert "Responses queue for processor 0" in verdict([processor()], TARGETS, [ring("response", 0.5)], []).text
    found = verdict([processor()], TARGETS, [ring("recorder", 0.9)], [])
    assert (found.level, found.where) == ("busy", ["recorder-0"])
    assert verdict([processor()], TARGETS, [ring("recorder", 0.2)], []).level == "calm"
    both = [ring("recorder", 0.9), ring("request", 0.2)]
    assert verdict([processor()], TARGETS, both, []).level == "stuck", "clients come before the log"


def test_memory_for_large_requests():
    assert "arena of processor 0" in verdict([processor(arena_used=95)], TARGETS, [], []).text


def test_who_has_no_time_left():
    found = verdict([processor(idle=0.05)], [target(0, 0.01), target(0, 0.0)], [], [])
    assert (found.level, found.where) == ("busy", ["handler-0", "controller-0", "processor-0"])


def test_what_is_not_known_is_no_trouble():
    assert verdict([processor(idle=None)], [target(0, None), target(0, None)], [], []).level == "calm"


def member(name: str, silent_s: float | None, *partitions: int) -> Member:
    return Member(
        id=name, instance_id=None, client_id="", host="", state=None, partitions={"orders": list(partitions)},
        silent_s=silent_s, session_left_s=None if silent_s is None else 45 - silent_s,
    )  # fmt: skip


def group(*members: Member) -> Group:
    return Group(
        id="billing", kind="share", state="Stable", protocol=None, generation=1, since_ms=None, handler=0, lag=None,
        lag_s=None, members=list(members), offsets=[], share_partitions=[],
    )  # fmt: skip


def test_a_silent_member_is_named_unless_others_read_its_partitions():
    well, silent = member("well", 3.0, 1), member("quiet", 30.0, 0, 1)
    found = verdict([processor()], TARGETS, [], [], groups=[group(well, silent)])
    assert found.text == (
        "Member quiet of group billing has been silent for 30 s; its partitions are read again in 15 s."
    )
    assert found.level == "busy"
    for calm in (member("quiet", 20.0, 0), member("quiet", 30.0, 1), member("quiet", 30.0), member("quiet", None, 0)):
        assert verdict([processor()], TARGETS, [], [], groups=[group(well, calm)]).level == "calm"
