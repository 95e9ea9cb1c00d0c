"""The causes that mute a channel: each mutes no other channel, and always ends."""

import pytest

from rotunda.broker.network.processor.memory_queue import least_bytes
from tests.support.processor_bench import (
    ARENA_BYTES,
    CREATE_TOPICS,
    PRODUCE,
    RING_BYTES,
    Client,
    ProcessorBench,
    Taken,
    frame,
)

PIPELINE_MAX, PIPELINE_RESUME = 64, 8
OUTPUT_MAX_BYTES = 65_536
SMALL_BUFFER_BYTES = 4096
SECOND_MS = 1000
HEADER_BYTES = len(frame(1)) - 4

BENCH_OPTIONS = {"output_max_bytes": OUTPUT_MAX_BYTES}


def announced(size: int) -> bytes:
    """Return the start of a request of `size` bytes."""
    return frame(1, bytes(size - HEADER_BYTES), PRODUCE)[:4000]


def fill_ring(bench: ProcessorBench, client: Client) -> list[Taken]:
    """Fill target 0's ring with whole requests of `client`; return them unreleased."""
    fitting = RING_BYTES // (60_000 + 150)
    for number in range(fitting):
        client.send(frame(number, bytes(60_000)))
    return bench.requests(fitting, release=False)


def test_d10_64_are_in_flight_and_reading_continues_below_8(bench: ProcessorBench) -> None:
    client = bench.connect()
    client.send(b"".join(frame(number) for number in range(100)))
    requests = bench.requests(PIPELINE_MAX)
    for request in requests[: PIPELINE_MAX - PIPELINE_RESUME]:
        bench.targets[0].answer(request, b"x")
    assert bench.nothing_more()
    bench.targets[0].answer(requests[PIPELINE_MAX - PIPELINE_RESUME], b"x")
    more = bench.requests(100 - PIPELINE_MAX)
    assert [each.correlation_id for each in more] == list(range(PIPELINE_MAX, 100))
    assert bench.value("mutes", "pipeline") == 1
    for request in (*requests[PIPELINE_MAX - PIPELINE_RESUME + 1 :], *more):
        bench.targets[0].answer(request, b"x")
    assert client.receive(100) == b"x" * 100
    assert not bench.restless()


def unwritten(bench: ProcessorBench) -> int:
    """Return the current number of unwritten response bytes."""
    bench.clock.advance_ms(1000)
    bench.run_once()
    return bench.value("answers_unwritten_bytes")


def test_d10_responses_held_back_count_as_in_flight(bench: ProcessorBench) -> None:
    client = bench.connect()
    client.send(b"".join(frame(number) for number in range(70)))
    requests = bench.requests(PIPELINE_MAX)
    for request in requests[1:]:
        bench.targets[0].answer(request, b"x")
    assert bench.nothing_more()
    bench.targets[0].answer(requests[0], b"x")
    assert len(bench.requests(6)) == 6


def test_b27_unread_responses_mute_their_connection_until_they_are_read(bench: ProcessorBench) -> None:
    slow, quick = bench.connect(SMALL_BUFFER_BYTES, SMALL_BUFFER_BYTES), bench.connect()
    slow.send(frame(1))
    (request,) = bench.requests(1)
    bench.targets[0].answer(request, bytes(OUTPUT_MAX_BYTES + 50_000))
    bench.run_once(3)
    assert bench.value("mutes", "output") == 1
    assert 50_000 < unwritten(bench) <= OUTPUT_MAX_BYTES + 50_000
    slow.send(frame(2) + frame(3))
    assert bench.nothing_more()
    assert quick.is_served()
    assert not bench.restless()
    slow.receive(OUTPUT_MAX_BYTES + 50_000)
    assert unwritten(bench) == 0
    assert [each.correlation_id for each in bench.requests(2)] == [2, 3]
    assert bench.value("mutes", "output") == 1


def test_b27_below_the_cap_reading_continues(bench: ProcessorBench) -> None:
    slow = bench.connect(SMALL_BUFFER_BYTES, SMALL_BUFFER_BYTES)
    slow.send(frame(1))
    (request,) = bench.requests(1)
    bench.targets[0].answer(request, bytes(OUTPUT_MAX_BYTES))
    slow.send(frame(2))
    assert len(bench.requests(1)) == 1
    assert bench.value("mutes", "output") == 0


def test_b32_d01_a_full_ring_mutes_its_senders_only_and_responses_continue(bench: ProcessorBench) -> None:
    filler, other = bench.connect(), bench.connect()
    requests = fill_ring(bench, filler)
    filler.send(frame(50, bytes(60_000)) + frame(51))
    bench.turn_until(lambda: bench.value("mutes", "ring_full"), "the channel is muted")
    other.send(frame(1, api_key=CREATE_TOPICS))
    (unhindered,) = bench.requests(1, target=1)
    bench.targets[1].answer(unhindered, b"done")
    assert other.receive(4) == b"done"
    bench.targets[0].answer(requests[0], b"answered")
    assert filler.receive(8) == b"answered"
    assert bench.nothing_more()
    assert bench.value("mutes", "ring_full") == 1
    bench.targets[0].consumer.release()
    assert [each.correlation_id for each in bench.requests(2)] == [50, 51]
    assert not bench.restless()


def test_b32_a_full_response_ring_is_drained_for_any_connection(bench: ProcessorBench) -> None:
    """Responses for closed connections occupy the ring too: a target must not wait for its space in vain."""
    ended, client = bench.connect(), bench.connect()
    count = 2 * RING_BYTES // 50_000
    for number in range(count):
        ended.send(frame(number))
    requests = bench.requests(count)
    ended.reset()
    bench.wait_closed(ended)
    for request in requests:
        bench.targets[0].answer(request, bytes(50_000))
    assert bench.targets[0].responses.blocked(0)
    client.send(frame(1))
    bench.turn_until(lambda: not bench.targets[0].responses.blocked(0), "the target's answers have gone in")
    (request,) = bench.requests(1)
    bench.targets[0].answer(request, b"answer")
    assert client.receive(6) == b"answer"


def test_b32_a_full_response_ring_of_held_responses_is_drained(bench: ProcessorBench) -> None:
    client = bench.connect()
    count = RING_BYTES // 50_000 + 3
    for number in range(count):
        client.send(frame(number))
    requests = bench.requests(count)
    for request in reversed(requests):
        bench.targets[0].answer(request, bytes(50_000))
    assert client.receive(count * 50_000) == bytes(count * 50_000)


@pytest.mark.parametrize("size", [ARENA_BYTES, ARENA_BYTES + 1])
def test_b14_without_memory_a_large_request_waits_and_others_do_not(bench: ProcessorBench, size: int) -> None:
    """The second size exceeds the arena: there is one separate buffer for such a request."""
    first, second, small = bench.connect(), bench.connect(), bench.connect()
    large = frame(1, bytes(size - HEADER_BYTES), PRODUCE)
    first.send(large)
    (request,) = bench.requests(1, release=False)
    assert len(request.payload) == size
    second.send(large[:70_000])
    bench.turn_until(lambda: bench.value("mutes", "arena"), "the channel is muted")
    small.send(frame(2) + frame(3, api_key=CREATE_TOPICS))
    assert len(bench.requests(1, release=False)) == 1
    assert len(bench.requests(1, target=1)) == 1
    assert bench.value("mutes", "arena") == 1
    bench.targets[0].consumer.release()
    second.send(large[70_000:])
    assert bench.requests(1)[0].payload == large[4:]


def test_c04_a_silent_sender_gives_its_memory_back_when_others_need_it(bench: ProcessorBench) -> None:
    silent, talking, waiting = bench.connect(), bench.connect(), bench.connect()
    silent.send(announced(ARENA_BYTES // 2))
    talking.send(announced(ARENA_BYTES // 2))
    bench.run_once(3)
    bench.clock.advance_ms(10 * SECOND_MS)
    bench.run_once(3)
    assert bench.closed() == []
    large = frame(7, bytes(300_000), PRODUCE)
    waiting.send(large[:4000])
    talking.send(bytes(least_bytes(ARENA_BYTES)))
    bench.wait_closed(silent)
    waiting.send(large[4000:])
    assert [each.correlation_id for each in bench.requests(1)] == [7]
    assert bench.closed() == [silent.serial]
    assert bench.value("connections_closed", "invalid_request") == 1


def test_c04_nobody_is_silent_while_the_processor_is_blocked(bench: ProcessorBench) -> None:
    silent, talking, waiting = bench.connect(), bench.connect(), bench.connect()
    for each in (silent, talking):
        each.send(announced(ARENA_BYTES // 2))
    waiting.send(frame(7, bytes(300_000), PRODUCE)[:4000])
    bench.run_once(3)
    talking.send(bytes(least_bytes(ARENA_BYTES)))
    bench.clock.advance_ms(10 * SECOND_MS)
    bench.wait_closed(silent)
    assert bench.closed() == [silent.serial]


def test_c04_a_slow_sender_does_not_hold_memory_that_others_need(
    bench: ProcessorBench, caplog: pytest.LogCaptureFixture
) -> None:
    """A byte now and then is not silence; while no other client waits for memory, its pace is acceptable."""
    dripping, waiting = bench.connect(), bench.connect()
    dripping.send(announced(ARENA_BYTES))
    for _ in range(5):
        bench.clock.advance_ms(SECOND_MS)
        dripping.send(b"x")
        bench.run_once(3)
    assert bench.closed() == []
    large = frame(7, bytes(300_000), PRODUCE)
    waiting.send(large[:4000])
    bench.wait_closed(dripping)
    waiting.send(large[4000:])
    assert [each.correlation_id for each in bench.requests(1)] == [7]
    assert "after 4001 of" in caplog.text


def test_b15_a_large_request_is_not_passed_for_ever(bench: ProcessorBench) -> None:
    """Smaller requests arrive all the time; none overtakes it once it has waited for a while."""
    small = frame(2, bytes(ARENA_BYTES // 2 - 10_000), PRODUCE)
    consumer = bench.targets[0].consumer
    for client in (bench.connect(), bench.connect()):
        client.send(small)
    first, second = bench.requests(2, release=False)
    large_client, passing, late = bench.connect(), bench.connect(), bench.connect()
    large = frame(1, bytes(ARENA_BYTES - HEADER_BYTES), PRODUCE)
    large_client.send(large[:4000])
    bench.turn_until(lambda: bench.reader.memory.is_short, "the large one waits")
    consumer.release_to(first.end)
    passing.send(small)
    (third,) = bench.requests(1, release=False)
    bench.clock.advance_ms(SECOND_MS)
    consumer.release_to(second.end)
    late.send(small[:70_000])
    assert bench.nothing_more()
    consumer.release_to(third.end)
    large_client.send(large[4000:])
    (fourth,) = bench.requests(1, release=False)
    assert len(fourth.payload) == ARENA_BYTES
    consumer.release_to(fourth.end)
    late.send(small[70_000:])
    assert [each.correlation_id for each in bench.requests(1)] == [2]


def test_b15_a_channel_muted_for_another_cause_does_not_delay_others(bench: ProcessorBench) -> None:
    """It waits for memory and is then throttled: others get the free memory, and it gets its own when that is over."""
    first, throttled, other = bench.connect(), bench.connect(), bench.connect()
    first.send(frame(1, bytes(ARENA_BYTES - HEADER_BYTES), PRODUCE))
    (received,) = bench.requests(1, release=False)
    throttled.send(frame(2))
    (asked,) = bench.requests(1, release=False)
    large = frame(3, bytes(300_000), PRODUCE)
    throttled.send(large[:70_000])
    bench.turn_until(lambda: bench.reader.memory.is_short, "it waits for memory")
    bench.targets[0].answer_throttled(asked, b"answer", 60 * SECOND_MS)
    assert throttled.receive(6) == b"answer"
    bench.clock.advance_ms(SECOND_MS)
    bench.targets[0].consumer.release_to(asked.end)
    assert received.payload
    other.send(frame(4, bytes(300_000), PRODUCE))
    assert [each.correlation_id for each in bench.requests(1)] == [4]
    bench.clock.advance_ms(60 * SECOND_MS)
    throttled.send(large[70_000:])
    assert [each.correlation_id for each in bench.requests(1)] == [3]
    assert bench.closed() == []


def test_c04_a_silent_sender_gets_its_earlier_responses(bench: ProcessorBench) -> None:
    silent, waiting = bench.connect(), bench.connect()
    silent.send(frame(1) + announced(ARENA_BYTES - 5000))
    (request,) = bench.requests(1)
    bench.clock.advance_ms(10 * SECOND_MS)
    waiting.send(frame(7, bytes(300_000), PRODUCE))
    assert [each.correlation_id for each in bench.requests(1)] == [7]
    assert bench.closed() == []
    bench.targets[0].answer(request, b"answer")
    assert silent.receive(6) == b"answer"
    bench.wait_closed(silent)


def test_b16_half_a_request_gives_its_memory_back_with_its_connection(bench: ProcessorBench) -> None:
    client = bench.connect()
    client.send(announced(ARENA_BYTES))
    bench.run_once(3)
    assert bench.sender.pool.free_bytes == 0
    client.sock.close()
    bench.wait_closed(client)
    assert bench.sender.pool.used_bytes == 0


def test_nothing_is_left_of_a_large_request_when_the_loop_has_nothing_else_to_do(bench: ProcessorBench) -> None:
    client = bench.connect()
    client.send(frame(1, bytes(ARENA_BYTES + 1), PRODUCE) + frame(2, bytes(300_000), PRODUCE))
    bench.requests(2)
    bench.clock.advance_ms(2 * SECOND_MS)
    bench.run_once()
    assert bench.published_value("arena_used_bytes") == 0
    assert bench.spill_bytes_in_memory() == 0


def test_b12_b13_three_mutes_at_once_end_one_by_one(bench: ProcessorBench) -> None:
    """Pipeline, output and a full ring overlap on one channel; only the last to end resumes reading."""
    filler = bench.connect()
    client = bench.connect(SMALL_BUFFER_BYTES, SMALL_BUFFER_BYTES)
    client.send(frame(0))
    (first,) = bench.requests(1)
    client.send(b"".join(frame(number, api_key=CREATE_TOPICS) for number in range(1, PIPELINE_MAX)))
    others = bench.requests(PIPELINE_MAX - 1, target=1)
    fill_ring(bench, filler)
    client.send(frame(99, bytes(60_000)))
    bench.targets[0].answer(first, bytes(OUTPUT_MAX_BYTES + 50_000))
    bench.run_once(3)
    for request in others:
        bench.targets[1].answer(request, b"x")
    assert bench.nothing_more()
    client.receive(OUTPUT_MAX_BYTES + 50_000 + len(others))
    bench.turn_until(lambda: bench.value("mutes", "ring_full"), "what is left is the full ring")
    bench.targets[0].consumer.release()
    assert [each.correlation_id for each in bench.requests(1)] == [99]
    assert not bench.restless()
