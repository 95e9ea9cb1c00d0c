"""Everything dies at once and starts again on the same data directory: acknowledged records are there."""

import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import wait_until
from tests.support.record_batches import record_batch
from tests.support.wire_client import WireClient
from tests.support.wire_messages import (
    EARLIEST,
    METADATA,
    create_topic,
    init_producer_id,
    list_offset,
    metadata_body,
    produce,
    read_partition,
)
from tests.support.writers import Writer, assert_exact

OWN_SETTINGS = {"num.network.threads": 2, "num.io.threads": 2}
OWN_OPTIONS = {"ephemeral": False}
OUT_OF_ORDER_SEQUENCE = 45
FIRST_SEGMENT = "00000000000000000000.log"


def crash_and_restart(broker: BrokerProcess) -> None:
    broker.kill_everything()
    broker.start()


def values(client: WireClient, topic: str, partition: int) -> list[bytes]:
    return [record.value for record in read_partition(client, topic, partition)]


def run_until_killed(writer: Writer, port: int, stop: threading.Event) -> None:
    """Run a writer whose connection will break."""
    try:
        writer.run(port, stop)
    except (AssertionError, OSError) as failure:
        if isinstance(failure, AssertionError) and "closed by the broker" not in str(failure):
            raise


def test_acknowledged_records_survive_the_death_of_every_process(own_broker, topic) -> None:
    """At most the one record that each writer had in flight is there without an acknowledgement."""
    writers = [Writer(f"writer{n}", topic, [n % 4]) for n in range(6)]
    with WireClient(own_broker.port) as client:
        create_topic(client, topic, 4)
    stop = threading.Event()
    with ThreadPoolExecutor(len(writers)) as pool:
        running = [pool.submit(run_until_killed, writer, own_broker.port, stop) for writer in writers]
        wait_until(lambda: min(writer.sent for writer in writers) > 200, "some load")
        own_broker.kill_everything()
        stop.set()
        for future in running:
            future.result()
    own_broker.start()
    with WireClient(own_broker.port) as client:
        for partition in range(4):
            concerned = [writer for writer in writers if partition in writer.partitions]
            records = read_partition(client, topic, partition)
            assert_exact(records, partition, concerned, spare=1)
            assert produce(client, topic, partition, record_batch([b"x"])).base_offset == len(records)


@pytest.mark.parametrize("crash", [True, False], ids=["SIGKILL", "stop"])
def test_topics_configs_and_ids_survive(own_broker, topic, crash) -> None:
    with WireClient(own_broker.port) as client:
        create_topic(client, topic, 3, {"retention.ms": 1234567})
        produce(client, topic, 2, record_batch([b"kept"], timestamp_ms=time.time_ns() // 1_000_000))
    before = own_broker.command("topic", "describe", topic).stdout
    assert topic in before
    if crash:
        crash_and_restart(own_broker)
    else:
        own_broker.stop()
        own_broker.start()
    assert own_broker.command("topic", "describe", topic).stdout == before
    with WireClient(own_broker.port) as client:
        assert values(client, topic, 2) == [b"kept"]
        assert topic.encode() in client.call(METADATA, 4, metadata_body([topic]))


def test_producer_state_survives(own_broker, topic) -> None:
    """After a crash a repeated batch is recognised, and a new producer id is really new."""
    with WireClient(own_broker.port) as client:
        create_topic(client, topic)
        producer_id, epoch = init_producer_id(client)
        now_ms = time.time_ns() // 1_000_000  # producers whose records are a day old expire

        def batch(sequence: int) -> bytes:
            return record_batch(
                [b"%d" % sequence],
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                timestamp_ms=now_ms,
            )

        for number in range(5):
            assert produce(client, topic, 0, batch(number))[2:] == (0, number)
    crash_and_restart(own_broker)
    with WireClient(own_broker.port) as client:
        assert produce(client, topic, 0, batch(4))[2:] == (0, 4)
        assert list_offset(client, topic, 0) == (0, 5)
        assert produce(client, topic, 0, batch(7)).error_code == OUT_OF_ORDER_SEQUENCE
        assert produce(client, topic, 0, batch(5))[2:] == (0, 5)
        assert init_producer_id(client)[0] > producer_id


def damage_tail(path: Path, kind: str) -> None:
    """Damage the end of a log file, which holds ten equal batches, as a crash of the machine can."""
    data = path.read_bytes()
    batch_bytes = len(record_batch([b"0" * 100]))
    end = data[: 10 * batch_bytes]
    match kind:
        case "one byte missing":
            path.write_bytes(end[:-1])
        case "only a batch header left":
            path.write_bytes(end[: 9 * batch_bytes + 61])
        case "half a length field left":
            path.write_bytes(end[: 9 * batch_bytes + 10])
        case "last batch altered":
            path.write_bytes(end[:-5] + b"!" + end[-4:])
        case "noise after the end":
            path.write_bytes(end + b"\x5a" * 300)
        case "zeros after the end":
            path.write_bytes(end + bytes(4096))


TAILS = {
    "one byte missing": 9,
    "only a batch header left": 9,
    "half a length field left": 9,
    "last batch altered": 9,
    "noise after the end": 10,
    "zeros after the end": 10,
}


def test_a_torn_tail_is_cut_to_the_whole_batches(own_broker, topic) -> None:
    """Each partition has a tail of its own kind, so that one restart shows them all."""
    written = [b"%d" % n + b"0" * 99 for n in range(10)]
    with WireClient(own_broker.port) as client:
        create_topic(client, topic, len(TAILS))
        for partition in range(len(TAILS)):
            for value in written:
                assert produce(client, topic, partition, record_batch([value])).error_code == 0
    own_broker.kill_everything()
    for partition, kind in enumerate(TAILS):
        damage_tail(own_broker.data_dir / f"{topic}-{partition}" / FIRST_SEGMENT, kind)
    own_broker.start()
    with WireClient(own_broker.port) as client:
        for partition, (kind, whole) in enumerate(TAILS.items()):
            assert values(client, topic, partition) == written[:whole], kind
            assert produce(client, topic, partition, record_batch([b"next"])).base_offset == whole, kind
            assert values(client, topic, partition) == [*written[:whole], b"next"], kind


def test_the_leftovers_of_a_crash_are_removed_by_the_next_start(own_broker) -> None:
    """By any start on this machine: that of a broker of another test may be the next one."""
    made = own_broker.shared_memory()
    assert made
    own_broker.kill_everything()
    own_broker.start()
    assert not any(Path(name).exists() for name in made)


def test_a_partition_whose_directory_is_gone_goes_on_at_its_end(own_broker, topic) -> None:
    """The start reports it, and no offset of a consumer is reused for another record."""
    with WireClient(own_broker.port) as client:
        create_topic(client, topic, 2)
        for partition in range(2):
            produce(client, topic, partition, record_batch([b"x"] * 5))
    own_broker.stop()
    shutil.rmtree(own_broker.data_dir / f"{topic}-0")
    begin = own_broker.log_bytes()
    own_broker.start()
    lines = [line for line in own_broker.log_since(begin) if " ERROR " in line]
    assert len(lines) == 1, lines
    assert f"{topic}-0: offsets 0 to 4 are lost" in lines[0]
    with WireClient(own_broker.port) as client:
        assert list_offset(client, topic, 0, EARLIEST) == (0, 5)
        assert produce(client, topic, 0, record_batch([b"y"])).base_offset == 5
        assert len(read_partition(client, topic, 1)) == 5
