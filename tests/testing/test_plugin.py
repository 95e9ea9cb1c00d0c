"""The pytest plugin in projects independent of this one: each is written, and run by a pytest of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from rotunda.broker.client.admin import topics
from rotunda.broker.client.network.blocking_client import BlockingClient
from rotunda.broker.testing import RotundaBroker
from tests.support.broker_process import REPOSITORY, is_alive
from tests.support.deadline import deadline_s, wait_until
from tests.support.supervised import SHARED_MEMORY

OPTIONS = ("-p", "no:cacheprovider", "-p", "no:schemathesis", "-p", "no:randomly")


def run(pytester: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    """Run a project of one file."""
    pytester.makepyfile(test_project=source)
    return pytester.runpytest_subprocess(*OPTIONS, *options)


def test_applications_of_three_libraries_are_tested_as_their_users_would(pytester: pytest.Pytester) -> None:
    """Row 1 of users.md."""
    result = run(
        pytester,
        """
        import asyncio

        from aiokafka import AIOKafkaConsumer
        from confluent_kafka import Consumer, Producer
        from kafka import KafkaProducer


        def test_confluent_kafka(rotunda_bootstrap, rotunda_topic):
            producer = Producer({"bootstrap.servers": rotunda_bootstrap})
            producer.produce(rotunda_topic, b"three apples")
            assert producer.flush(30) == 0
            settings = {"bootstrap.servers": rotunda_bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
            consumer = Consumer(settings)
            consumer.subscribe([rotunda_topic])
            assert consumer.poll(30).value() == b"three apples"
            consumer.close()


        def test_kafka_python(rotunda_bootstrap, rotunda_topic):
            producer = KafkaProducer(bootstrap_servers=rotunda_bootstrap)
            assert producer.send(rotunda_topic, b"x").get(30).offset == 0
            producer.close()


        def test_aiokafka(rotunda_broker, rotunda_topic):
            async def consume():
                consumer = AIOKafkaConsumer(
                    rotunda_topic, bootstrap_servers=rotunda_broker.bootstrap, auto_offset_reset="earliest"
                )
                await consumer.start()
                producer = KafkaProducer(bootstrap_servers=rotunda_broker.bootstrap)
                producer.send(rotunda_topic, b"y").get(30)
                producer.close()
                record = await asyncio.wait_for(consumer.getone(), 30)
                await consumer.stop()
                return record.value

            assert asyncio.run(consume()) == b"y"
        """,
    )
    result.assert_outcomes(passed=3)


def test_each_test_has_a_topic_of_its_own_which_goes_with_it(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest
        from confluent_kafka.admin import AdminClient

        seen = []


        def topics(bootstrap):
            found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).topics
            return {name: len(topic.partitions) for name, topic in found.items()}


        @pytest.mark.parametrize("value", ["a/b", "a b"])
        def test_one(rotunda_bootstrap, rotunda_topic, value):
            assert topics(rotunda_bootstrap) == {rotunda_topic: 1}
            assert rotunda_topic.startswith("test_one-a-b-") and rotunda_topic not in seen
            seen.append(rotunda_topic)


        @pytest.mark.rotunda_topic(partitions=5, settings={"cleanup.policy": "compact"})
        def test_its_marker_says_how_it_is_made(rotunda_broker, rotunda_topic):
            assert topics(rotunda_broker.bootstrap) == {rotunda_topic: 5}


        def test_reset(rotunda_broker, rotunda_topic, rotunda_reset):
            assert topics(rotunda_broker.bootstrap) == {}
            rotunda_broker.create_topic("more", 2)
            assert rotunda_reset() == []
            assert topics(rotunda_broker.bootstrap) == {}
        """,
    )
    result.assert_outcomes(passed=4)


def test_marked_tests_have_a_broker_with_their_settings_and_others_have_not(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import sys

        import pytest

        brokers = {}
        THREE = pytest.mark.rotunda(settings={"num.partitions": 3, "auto.create.topics.enable": False})


        @pytest.fixture(scope="session")
        def session_wide(rotunda_bootstrap):
            return rotunda_bootstrap


        def test_unmarked(rotunda_broker, session_wide):
            brokers["unmarked"] = rotunda_broker
            assert rotunda_broker.settings == {}


        @THREE
        def test_marked(rotunda_broker, session_wide, request):
            assert request.node.name == "test_marked"
            brokers["marked"] = rotunda_broker
            assert rotunda_broker.settings["num.partitions"] == 3
            assert session_wide == rotunda_broker.bootstrap != brokers["unmarked"].bootstrap


        @THREE
        def test_marked_too(rotunda_broker):
            assert brokers["marked"] is rotunda_broker


        def test_unmarked_too(rotunda_broker, rotunda_topic, rotunda_requests):
            assert brokers["unmarked"] is rotunda_broker
            assert rotunda_requests() == []
            # What has been used so far needs no client library.
            assert not {"kafka", "confluent_kafka", "aiokafka"} & set(sys.modules)


        def test_further_ones(rotunda_broker, rotunda_brokers):
            one, other = rotunda_brokers(), rotunda_brokers({"num.io.threads": 1})
            assert len({one.bootstrap, other.bootstrap, rotunda_broker.bootstrap}) == 3


        @pytest.mark.rotunda({"num.partitons": 3})
        def test_misspelt(rotunda_broker):
            pass
        """,
    )
    result.assert_outcomes(passed=5, errors=1)
    result.stdout.fnmatch_lines(["*num.partitons*did you mean num.partitions*"])


def test_markers_with_other_arguments_are_rejected(pytester: pytest.Pytester) -> None:
    of_brokers = ["'x'", "{}, {}", "setting={}", "{}, settings={}", "settings=None"]
    of_topics = ["5", "partition=5", "settings={}, replicas=1"]
    fixture = "@pytest.fixture\ndef rotunda_broker():\n    return None  # nothing is asked of it\n"
    tests = [f"@pytest.mark.rotunda({words})\ndef test_it(rotunda_broker):\n    pass\n" for words in of_brokers]
    tests += [
        f"{fixture}\n@pytest.mark.rotunda_topic({words})\ndef test_it(rotunda_topic):\n    pass\n"
        for words in of_topics
    ]
    pytester.makepyfile(**{f"test_{number}": f"import pytest\n\n{test}" for number, test in enumerate(tests)})
    result = pytester.runpytest_subprocess(*OPTIONS, "--continue-on-collection-errors")
    result.assert_outcomes(errors=len(tests))
    printed = result.stdout.str()
    for words in of_brokers:
        assert f"@pytest.mark.rotunda({words}): only settings are accepted" in printed
    complaint = "E   *UsageError: @pytest.mark.rotunda_topic accepts only partitions=*"
    result.stdout.fnmatch_lines([complaint] * len(of_topics))


def test_what_clients_have_sent_is_listed_and_stands_in_the_report_of_a_failed_test(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest
        from confluent_kafka import Producer
        from rotunda.broker.errors import UsageError


        def produce(bootstrap, topic, client_id):
            producer = Producer({"bootstrap.servers": bootstrap, "client.id": client_id})
            producer.produce(topic, b"x", partition=0)
            assert producer.flush(30) == 0


        def test_before(rotunda_bootstrap, rotunda_topic):
            produce(rotunda_bootstrap, rotunda_topic, "earlier")


        def test_requests(rotunda_bootstrap, rotunda_topic, rotunda_requests):
            produce(rotunda_bootstrap, rotunda_topic, "shop")
            [sent] = rotunda_requests("Produce")
            assert (sent.client_id, sent.topic, sent.partition, sent.records, sent.error) == (
                "shop", rotunda_topic, 0, 1, None
            )
            assert {each.api for each in rotunda_requests(client_id="shop")} >= {"ApiVersions", "Metadata", "Produce"}
            assert rotunda_requests("PRODUCE", topic="another") == []
            with pytest.raises(UsageError, match="unknown API 'Prodcue'.*did you mean Produce"):
                rotunda_requests("Prodcue")


        def test_that_fails(rotunda_bootstrap, rotunda_topic):
            produce(rotunda_bootstrap, rotunda_topic, "shop")
            assert False
        """,
    )
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        ["*- rotunda: the last requests -*", "*shop: Produce v* test_that_fails-*(1 record): ok*"]
    )
    assert "earlier: Produce" not in result.stdout.str()


def test_an_external_broker_is_used_and_keeps_what_is_not_of_the_tests(pytester: pytest.Pytester) -> None:
    with RotundaBroker() as broker:
        broker.create_topic("theirs")
        result = run(
            pytester,
            """
            import pytest
            from rotunda.broker.errors import UsageError


            def test_it(rotunda_broker, rotunda_topic, rotunda_reset):
                rotunda_broker.create_topic("ours")
                rotunda_reset()
                with pytest.raises(UsageError, match="theirs was not made by these tests"):
                    rotunda_broker.delete_topic("theirs")
                with pytest.raises(UsageError, match="kill needs a broker that the tests have started"):
                    rotunda_broker.kill("handler")


            @pytest.mark.rotunda(settings={"num.partitions": 3})
            def test_settings(rotunda_broker):
                pass
            """,
            f"--rotunda-external={broker.bootstrap}",
        )
        result.assert_outcomes(passed=1, errors=1)
        result.stdout.fnmatch_lines(["*an external broker*has the settings that it has*"])
        broker.create_topic("ours")
        broker.create_topic("test_it")
        broker.delete_topic("theirs")


def test_options_stand_in_the_projects_settings_as_well_and_kept_data_stay(
    pytester: pytest.Pytester, tmp_path: Path
) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("listeners=PLAINTEXT://127.0.0.1:9092\nnum.partitions=7\n")
    pytester.makeini(f"[pytest]\nrotunda_config = {properties}\nrotunda_keep = {tmp_path / 'kept'}\n")
    result = run(
        pytester,
        """
        from confluent_kafka import Producer


        def test_it(rotunda_bootstrap):
            producer = Producer({"bootstrap.servers": rotunda_bootstrap})
            producer.produce("made", b"x", partition=6)
            assert producer.flush(30) == 0
        """,
    )
    result.assert_outcomes(passed=1)
    [directory] = (tmp_path / "kept").iterdir()
    assert (directory / "broker.log").exists()
    assert (directory / "data" / "made-6").is_dir()
    assert (directory / "data" / ".kafka_cleanshutdown").exists(), "what is kept was not brought to safety"


def test_workers_of_xdist_have_brokers_of_their_own_and_nothing_is_left(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest


        @pytest.mark.parametrize("n", range(6))
        def test_it(rotunda_broker, rotunda_topic, worker_id, n):
            with open("brokers", "a") as file:
                file.write(f"{worker_id} {rotunda_broker.pid} {rotunda_broker.data_dir}\\n")
        """,
        "-n2",
        "--dist=each",
    )
    result.assert_outcomes(passed=12)
    seen = {tuple(line.split()) for line in (pytester.path / "brokers").read_text().splitlines()}
    assert len(seen) == 2
    assert not [pid for _, pid, _ in seen if psutil.pid_exists(int(pid))]
    assert not [directory for _, _, directory in seen if Path(directory).exists()]


def test_a_project_that_asks_for_none_of_it_gets_no_broker_and_loads_nothing_large(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import sys


        def test_it():
            large = {"pyarrow", "numpy", "kio", "fastapi", "psutil", "kafka", "confluent_kafka", "aiokafka"}
            assert not large & {name.partition(".")[0] for name in sys.modules}
        """,
        "-p", "no:xdist",
    )  # fmt: skip
    result.assert_outcomes(passed=1)


def test_a_broker_ends_when_its_tests_are_killed(tmp_path: Path) -> None:
    source = (
        "from rotunda.broker.testing import RotundaBroker\nprint(RotundaBroker().start().pid, flush=True)\ninput()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path
    ) as tests:
        assert tests.stdout is not None
        pid = int(tests.stdout.readline())
        supervisor = psutil.Process(pid)
        family = [supervisor, *supervisor.children(recursive=True)]
        made = list(SHARED_MEMORY.glob(f"rotunda-{pid}.*"))
        os.kill(tests.pid, signal.SIGKILL)
    assert made
    wait_until(lambda: not any(map(is_alive, family)), "their end")
    assert not [path for path in made if path.exists()]


def test_records_are_written_and_read_without_a_client_library(pytester: pytest.Pytester) -> None:
    """The fixture's own requests are not those of the tested application: not listed, and without faults."""
    result = run(
        pytester,
        """
        import pytest
        from rotunda.broker.errors import RotundaError


        @pytest.mark.rotunda_topic(partitions=2)
        def test_it(rotunda_broker, rotunda_topic, rotunda_requests):
            rotunda_broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER")
            rotunda_broker.produce(rotunda_topic, "one", b"two", key="k", partition=1)
            rotunda_broker.produce(rotunda_topic, None, key=b"k")
            found = rotunda_broker.consume(rotunda_topic)
            assert sorted(str(each.value) for each in found) == ["None", "b'one'", "b'two'"]
            assert {each.key for each in found} == {b"k"}
            assert len(rotunda_broker.consume(rotunda_topic, 2)) == 2
            with pytest.raises(RotundaError, match="has 3 of 4 records after 0.1 s"):
                rotunda_broker.consume(rotunda_topic, 4, timeout_s=0.1)
            assert rotunda_requests() == []
        """,
    )
    result.assert_outcomes(passed=1)


def test_an_application_may_request_three_replicas() -> None:
    failures: list[object] = []
    with RotundaBroker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        wanted = NewTopic("orders", 2, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([wanted])["orders"].result(30)
        partitions = admin.list_topics("orders").topics["orders"].partitions
        assert [each.replicas for each in partitions.values()] == [[1], [1]]
        producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
        producer.produce("orders", b"x", on_delivery=lambda error, _: failures.append(error))
        producer.flush(30)
    assert failures == [None]


def test_unittest_and_scripts_have_the_context_manager_and_processes_can_be_killed() -> None:
    with RotundaBroker({"num.io.threads": 1}) as broker:
        broker.create_topic("orders", 3, {"cleanup.policy": "compact"})
        broker.kill("handler")
        with pytest.raises(Exception, match=r"there is no handler 7; there are .*handler 0"):
            broker.kill("handler", 7)
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "shop", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["orders"])
        wait_until(lambda: consumer.poll(0.1) or consumer.assignment(), "a member with partitions")
        assert broker.reset() == ["shop"]
        consumer.close()
        assert broker.reset() == []
        wait_until(lambda: "handler 0 is back" in broker.log_text(), "the line")
        data_dir = broker.data_dir
    assert not data_dir.exists()
    with pytest.raises(Exception, match="does not run"):
        broker.requests()


ENDS = """
import sys

import psutil

from rotunda.broker.testing import RotundaBroker
from tests.support.broker_process import REPOSITORY, is_alive
from tests.support.deadline import wait_until
from tests.support.supervised import SHARED_MEMORY

with RotundaBroker() as broker:
    broker.create_topic("orders", 3)
    supervisor = psutil.Process(broker.pid)
    family = [supervisor, *supervisor.children(recursive=True)]
    made = [broker.data_dir, *SHARED_MEMORY.glob(f"rotunda-{broker.pid}.*")]
    if "kill" in sys.argv:
        supervisor.kill()
assert len(family) > 1
assert len(made) > 1
assert not [path for path in made if path.exists()]
wait_until(lambda: not any(map(is_alive, family)), "the end of its processes")
"""


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_broker_ends_silently_and_nothing_stays(how: str) -> None:
    """Also if its supervisor is killed, which would have removed it.

    In a process of its own: clients of other tests in this one may print as well.
    """
    ended = subprocess.run(
        [sys.executable, "-c", ENDS, how],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=deadline_s(60),
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_the_example_with_a_share_consumer(pytester: pytest.Pytester) -> None:
    examples = (REPOSITORY / "docs" / "testing.md").read_text().split("```python\n")
    [example] = [each.partition("```")[0] for each in examples if "import AcknowledgeType" in each]
    run(pytester, example).assert_outcomes(passed=1)


def test_a_broker_takes_no_settings_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A developer may have set them for other brokers."""
    monkeypatch.setenv("ROTUNDA_CONFIG", str(tmp_path / "missing.properties"))
    monkeypatch.setenv("ROTUNDA_DATA_DIR", str(tmp_path / "theirs"))
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "7")
    with RotundaBroker() as broker:
        assert "theirs" not in str(broker.data_dir)
        with BlockingClient(broker.bootstrap) as client:
            topics.create(client, "t", -1, -1, {})
            assert topics.partition_counts(client, ["t"]) == {"t": 1}
    assert not (tmp_path / "theirs").exists()


def test_requests_are_listed_from_the_first_moment_on_and_a_broker_without_a_log_says_so() -> None:
    """The process that writes the log is among the last to begin."""
    with RotundaBroker() as broker:
        assert broker.requests() == []
    with (
        RotundaBroker({"request.log.enable": False}) as broker,
        pytest.raises(Exception, match=r"keeps no request log"),
    ):
        broker.requests()
