"""The memory of requests during their processing by a target, and its release."""

import os

from rotunda.broker.ipc.request_channel import ARENA
from rotunda.broker.network.processor.request_sender import Block, MemoryPool, RequestSender, spill_area
from rotunda.broker.security.session import pack_session
from tests.support.processor_bench import ARENA_BYTES, SPILL_BYTES, ProcessorBench

TOO_LARGE_BYTES = ARENA_BYTES + 1
HALF_BYTES = ARENA_BYTES // 2
CONNECTION = 7


def envelope(size: int, sequence: int = 0) -> tuple[int, int, int, int, int, int, int]:
    return (CONNECTION, sequence, 123, 3, 4, 5, size)


def send_block(sender: RequestSender, block: Block, size: int, target: int = 0) -> None:
    assert sender.try_send_block(target, envelope(size), 0, (block.area, block.address))
    sender.publish()


def allocate(sender: RequestSender, size: int) -> Block:
    block = sender.allocate(size)
    assert block is not None
    return block


def test_h06_the_user_of_a_request_is_in_its_ring_and_counts_in_its_size(bench: ProcessorBench) -> None:
    alice = pack_session("alice", "10.1.2.3")
    assert bench.sender.try_send(1, envelope(4), 0, b"abcd", alice)
    block = allocate(bench.sender, 5000)
    block.view[:] = bytes(5000)
    assert bench.sender.try_send_block(1, envelope(5000), 0, (block.area, block.address), alice)
    assert bench.sender.try_send(1, envelope(2), 0, b"ef")
    bench.sender.publish()
    received = bench.targets[1].take()
    assert [(each.payload, each.session) for each in received] == [
        (b"abcd", alice), (bytes(5000), alice), (b"ef", b""),
    ]  # fmt: skip


def test_nothing_is_seen_before_it_is_published_and_one_bell_rings_for_all(bench: ProcessorBench) -> None:
    for sequence in range(3):
        assert bench.sender.try_send(0, envelope(4, sequence), 0, b"abcd")
    assert bench.targets[0].take() == []
    assert not bench.target_bells[0].wait(0)
    bench.sender.publish()
    assert [each.sequence for each in bench.targets[0].take()] == [0, 1, 2]
    assert bench.target_bells[0].wait(0)
    assert not bench.target_bells[0].wait(0)
    assert not bench.target_bells[1].wait(0)
    bench.sender.publish()
    assert not bench.target_bells[0].wait(0)


def test_b16_a_block_is_free_when_its_frame_is_released_and_not_before(bench: ProcessorBench) -> None:
    sender = bench.sender
    block = allocate(sender, ARENA_BYTES)
    block.view[:5] = b"large"
    send_block(sender, block, 5)
    (received,) = bench.targets[0].take(release=False)
    assert received.payload == b"large"
    bench.targets[0].answer(received, b"\0\0\0\0")
    assert sender.allocate(100_000) is None
    bench.targets[0].consumer.release()
    assert sender.pool.free_bytes == 0
    assert sender.allocate(100_000) is not None
    assert sender.pool.free_bytes > 0


def test_blocks_of_different_targets_are_freed_by_their_own_rings(bench: ProcessorBench) -> None:
    sender = bench.sender
    for target in (0, 1):
        send_block(sender, allocate(sender, HALF_BYTES), HALF_BYTES, target)
    bench.targets[1].take()
    assert sender.reclaim()
    assert not sender.reclaim()
    assert sender.pool.used_bytes == HALF_BYTES
    bench.targets[0].take()
    assert sender.reclaim()
    assert sender.pool.used_bytes == 0


def test_b33_a_request_larger_than_the_arena_lies_in_the_spill_area_one_at_a_time(bench: ProcessorBench) -> None:
    sender = bench.sender
    block = allocate(sender, TOO_LARGE_BYTES)
    assert block.area == spill_area(0)
    assert len(block.view) == TOO_LARGE_BYTES
    block.view[-4:] = b"last"
    assert os.pread(bench.spill_fd, 4, TOO_LARGE_BYTES - 4) == b"last"
    assert sender.allocate(TOO_LARGE_BYTES) is None
    small = allocate(sender, 100_000)
    assert small.area == ARENA
    send_block(sender, block, TOO_LARGE_BYTES)
    bench.targets[0].take()
    assert allocate(sender, SPILL_BYTES).area == spill_area(0)


def test_the_memory_of_a_spilled_request_is_released(bench: ProcessorBench) -> None:
    block = allocate(bench.sender, TOO_LARGE_BYTES)
    block.view[:] = bytes(len(block.view))
    assert bench.spill_bytes_in_memory() >= TOO_LARGE_BYTES
    bench.sender.pool.free(block.area, block.address)
    assert bench.spill_bytes_in_memory() == 0
    assert os.fstat(bench.spill_fd).st_size == SPILL_BYTES
    assert bytes(allocate(bench.sender, TOO_LARGE_BYTES).view[:4]) == bytes(4)


def test_b33_a_replacement_does_not_overwrite_requests_of_its_predecessor(bench: ProcessorBench) -> None:
    block = allocate(bench.sender, 100_000)
    block.view[:4] = b"old "
    send_block(bench.sender, block, 4)
    pool = MemoryPool(bench.arena, 0, ARENA_BYTES, bench.spill_fd, spill_area(0))
    replacement = RequestSender(bench.channel, 0, bench.target_bells, pool)
    assert replacement.allocate(100_000) is None
    assert replacement.allocate(TOO_LARGE_BYTES) is None
    assert replacement.try_send(0, envelope(4), 0, b"new ")
    replacement.publish()
    old, new = bench.targets[0].take(release=False)
    assert (old.payload, new.payload) == (b"old ", b"new ")
    bench.targets[0].consumer.release_to(old.end)
    assert replacement.allocate(100_000) is not None
