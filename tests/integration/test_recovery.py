"""Everything dies at once and starts again on the same data directory: acknowledged records are there."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import wait_until
from tests.support.record_batches import record_batch
from tests.support.wire_client import WireClient
from tests.support.wire_messages import METADATA, create_topic, metadata_body, produce, read_partition
from tests.support.writers import Writer, assert_exact

OWN_SETTINGS = {"num.network.threads": 2, "num.io.threads": 2}
OWN_OPTIONS = {"ephemeral": False}


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


def test_topics_configs_and_ids_survive(own_broker: BrokerProcess, topic: str) -> None:
    with WireClient(own_broker.port) as client:
        create_topic(client, topic, 3, {"retention.ms": 1234567})
        produce(client, topic, 2, record_batch([b"kept"], timestamp_ms=time.time_ns() // 1_000_000))
    before = own_broker.command("topic", "describe", topic).stdout
    assert topic in before
    for end in (own_broker.kill_everything, own_broker.stop):
        end()
        own_broker.start()
        assert own_broker.command("topic", "describe", topic).stdout == before
        with WireClient(own_broker.port) as client:
            assert [record.value for record in read_partition(client, topic, 2)] == [b"kept"]
            assert topic.encode() in client.call(METADATA, 4, metadata_body([topic]))
