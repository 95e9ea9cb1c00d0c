"""Copies of pending requests: when they mute a channel, which ones need no memory, and their cost."""

import random
import socket

import pytest

from rotunda.broker.network.processor.channel import Channel
from rotunda.broker.network.processor.kept_requests import OWN_BYTES, KeptRequests, is_kept
from rotunda.broker.network.processor.throttling.mute_state import MuteCause
from tests.support.feeds import random_seed
from tests.support.processor_bench import CREATE_TOPICS, METADATA, PRODUCE, ProcessorBench
from tests.support.wire_client import request_frame

CONNECTION_MOST_BYTES, MOST_BYTES = 100_000, 150_000
LARGE_BYTES = 40_000

BENCH_OPTIONS = {"pipeline_max_bytes": CONNECTION_MOST_BYTES, "pipeline_max_total_bytes": MOST_BYTES}


def frame(correlation_id: int, body_bytes: int = 0, api_key: int = METADATA) -> bytes:
    return request_frame(api_key, 4, correlation_id, bytes(body_bytes))


def fill(bench: ProcessorBench) -> None:
    """Fill the memory for copies with requests of other clients."""
    for number in range(4):
        bench.connect().send(frame(number, LARGE_BYTES))
        bench.requests(1)


def test_a_connection_over_its_memory_is_read_again_with_each_response(bench: ProcessorBench) -> None:
    client, other = bench.connect(), bench.connect()
    client.send(b"".join(frame(number, LARGE_BYTES) for number in range(5)))
    requests = bench.requests(3)
    assert bench.nothing_more()
    assert bench.value("mutes", "pipeline_bytes") == 1
    assert not bench.restless()
    other.send(frame(9, LARGE_BYTES))
    assert len(bench.requests(1)) == 1
    bench.targets[0].answer(requests[0], b"first")
    assert client.receive(5) == b"first"
    assert [each.correlation_id for each in bench.requests(1)] == [3]
    assert bench.nothing_more()


def test_produce_does_not_count(bench: ProcessorBench) -> None:
    client = bench.connect()
    client.send(b"".join(frame(number, LARGE_BYTES, PRODUCE) for number in range(8)))
    assert len(bench.requests(4)) + len(bench.requests(4)) == 8
    assert bench.published_value("requests_kept_bytes") == 0


def test_without_room_a_connection_has_one_request_more_and_small_ones_as_ever(bench: ProcessorBench) -> None:
    fill(bench)
    small, large = bench.connect(), bench.connect()
    small.send(b"".join(frame(number, 50) for number in range(60)))
    assert len(bench.requests(60)) == 60
    large.send(frame(70, LARGE_BYTES) + frame(71))
    (request,) = bench.requests(1)
    assert request.correlation_id == 70
    assert bench.nothing_more()
    assert bench.published_value("requests_not_kept") == 1
    assert bench.published_value("requests_kept_bytes") <= MOST_BYTES
    bench.targets[0].answer(request, b"seventy")
    assert large.receive(7) == b"seventy"
    assert [each.correlation_id for each in bench.requests(1)] == [71]


def test_a_request_without_a_copy_ends_its_connection_when_its_target_is_replaced(bench: ProcessorBench) -> None:
    fill(bench)
    kept, lost, elsewhere = bench.connect(), bench.connect(), bench.connect()
    kept.send(frame(80))
    bench.requests(1)
    lost.send(frame(81, LARGE_BYTES))
    bench.requests(1)
    elsewhere.send(frame(82, LARGE_BYTES, CREATE_TOPICS))
    (other,) = bench.requests(1, target=1)
    bench.processor.target_ready(0, 2)
    bench.wait_closed(lost)
    assert bench.value("connections_closed", "not_kept") == 1
    again = bench.requests(5)
    (request,) = [each for each in again if each.correlation_id == 80]
    bench.targets[0].answer(request, b"again")
    assert kept.receive(5) == b"again"
    bench.targets[1].answer(other, b"other")
    assert elsewhere.receive(5) == b"other"


@pytest.mark.parametrize("size", [LARGE_BYTES, 120_000])
def test_room_returns_with_the_end_of_a_connection(bench: ProcessorBench, size: int) -> None:
    """The second size is stored in the arena."""
    for way in ("reset", "close_connection"):
        client = bench.connect()
        client.send(frame(1, size) + frame(2, size) + frame(3, size))
        request = bench.requests(1 if size > CONNECTION_MOST_BYTES else 3)[0]
        assert bench.published_value("requests_kept_bytes") > 0
        assert bench.value("mutes", "pipeline_bytes") > 0
        if way == "reset":
            client.reset()
        else:
            bench.targets[0].close_connection(request)
        bench.wait_closed(client)
        assert bench.published_value("requests_kept_bytes") == 0


def test_d10_responses_held_for_an_earlier_one_count_as_output() -> None:
    with ProcessorBench(output_max_bytes=65_536) as narrow:
        client = narrow.connect()
        client.send(frame(0) + frame(1) + frame(2))
        first, second, third = narrow.requests(3)
        narrow.targets[0].answer(third, bytes(50_000))
        narrow.run_once(3)
        assert narrow.value("mutes", "output") == 0
        narrow.targets[0].answer(second, bytes(50_000))
        narrow.run_once(3)
        assert narrow.value("mutes", "output") == 1
        client.send(frame(3))
        assert narrow.nothing_more()
        assert not narrow.restless()
        narrow.targets[0].answer(first, b"x")
        assert len(client.receive(100_001)) == 100_001
        assert [each.correlation_id for each in narrow.requests(1)] == [3]


def test_the_count_is_the_sum_of_the_channels_copies() -> None:
    seed = random_seed()
    chance = random.Random(seed)
    kept = KeptRequests(CONNECTION_MOST_BYTES, MOST_BYTES)
    ours, theirs = socket.socketpair()
    channels = [Channel(ours, number, number, 0, "peer") for number in range(5)]
    for sequence in range(3000):
        channel = chance.choice(channels)
        if chance.random() < 0.55:
            kept.keep(channel, sequence, 0, 0, bytes(chance.choice((20, 3000, 30_000, 90_000))))
        elif channel.repeatable and chance.random() < 0.95:
            kept.drop(channel, chance.choice(list(channel.repeatable)))
        elif chance.random() < 0.2:
            kept.drop_all(channel)
        held = [sum(len(bytes_) for _, _, bytes_ in each.repeatable.values()) for each in channels]
        assert [each.kept_bytes for each in channels] == held, f"seed {seed}"
        assert kept.shared_bytes == sum(max(0, each - OWN_BYTES) for each in held), f"seed {seed}"
        assert kept.shared_bytes <= MOST_BYTES + len(channels) * 4000, f"seed {seed}"
        assert all(kept.allows(each) for each in channels if not each.repeatable), f"seed {seed}"
    assert kept.not_kept > 0
    assert any(not is_kept(bytes_) for each in channels for _, _, bytes_ in each.repeatable.values()) or kept.not_kept
    assert any(each.muted & MuteCause.PIPELINE_BYTES for each in channels)
    for channel in channels:
        kept.drop_all(channel)
    assert kept.shared_bytes == 0
    ours.close()
    theirs.close()
