"""The plugin with unittest, asynchronous tests and pytest-xdist, and its message when a broker has died."""

from __future__ import annotations

import pytest

from tests.testing.test_plugin import run


def test_unittest_has_a_broker_and_faults_of_its_own(pytester: pytest.Pytester) -> None:
    """The same file runs by `python -m unittest`."""
    source = """
        import unittest

        from rotunda.broker.testing import RotundaBroker
        from confluent_kafka import Producer


        class Orders(unittest.TestCase):
            @classmethod
            def setUpClass(cls):
                cls.broker = cls.enterClassContext(RotundaBroker({"num.io.threads": 1}))

            def setUp(self):
                self.addCleanup(self.broker.reset)

            def test_errors(self):
                self.broker.create_topic("orders", settings={"cleanup.policy": ["compact", "delete"]})
                fault = self.broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=1)
                producer = Producer({"bootstrap.servers": self.broker.bootstrap})
                producer.produce("orders", b"x", key=b"k")
                self.assertEqual(producer.flush(30), 0)
                self.assertEqual(fault.count, 1)

            def test_others(self):
                self.assertFalse([each for each in self.broker.faults if each.is_in_force])
                self.broker.create_topic("orders")
                self.broker.delay("Produce", 3_600_000)
        """
    run(pytester, source).assert_outcomes(passed=2)
    done = pytester.runpython_c("import unittest; unittest.main('test_project')")
    assert done.ret == 0
    done.stderr.fnmatch_lines(["OK"])
    assert "rotunda" not in done.stdout.str()


def test_asynchronous_tests_use_the_fixtures(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest
        from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

        pytestmark = pytest.mark.anyio


        @pytest.fixture
        def anyio_backend():
            return "asyncio"


        @pytest.fixture
        async def producer(rotunda_bootstrap):
            async with AIOKafkaProducer(bootstrap_servers=rotunda_bootstrap) as producer:
                yield producer


        async def test_it(rotunda_broker, rotunda_topic, rotunda_requests, producer):
            rotunda_broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=1, topic=rotunda_topic)
            await producer.send_and_wait(rotunda_topic, b"x")
            assert [each.injected for each in rotunda_requests("Produce", topic=rotunda_topic)] == ["error", None]


        async def test_one_that_leaves_a_fault_does_not_hold_up_its_fixtures(rotunda_broker, rotunda_topic, producer):
            await producer.send_and_wait(rotunda_topic, b"x")
            rotunda_broker.delay("Produce", 3_600_000)
            await producer.send(rotunda_topic, b"x")
        """,
    )
    result.assert_outcomes(passed=2)


def test_workers_of_xdist_inject_into_their_own_brokers(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest
        from confluent_kafka import Producer


        @pytest.mark.parametrize("n", range(4))
        def test_it(rotunda_broker, rotunda_topic, n):
            fault = rotunda_broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=1)
            producer = Producer({"bootstrap.servers": rotunda_broker.bootstrap})
            producer.produce(rotunda_topic, b"x")
            assert producer.flush(30) == 0
            assert fault.count == 1
        """,
        "-n2",
    )
    result.assert_outcomes(passed=4)


def test_a_broker_that_has_died_says_so_with_its_log(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import os
        import signal

        import pytest


        @pytest.fixture
        def orders(rotunda_broker):
            rotunda_broker.create_topic("orders")
            while "created topic orders" not in rotunda_broker.log_text():
                pass
            raise RuntimeError("what a fixture meets")


        def test_one_whose_fixture_fails_is_reported_too(orders):
            pass


        def test_it(rotunda_broker):
            os.kill(rotunda_broker.pid, signal.SIGTERM)
            os.waitid(os.P_PID, rotunda_broker.pid, os.WEXITED | os.WNOWAIT)
            rotunda_broker.delay("Fetch", 5)
        """,
    )
    result.assert_outcomes(failed=1, errors=1)
    result.stdout.fnmatch_lines(["*what a fixture meets*", "*- rotunda: the broker's log -*", "*created topic orders*"])
    result.stdout.fnmatch_lines(["*RotundaError: the broker has ended with exit status 0*", "*rotunda ready*"])


def test_further_brokers_take_faults_of_their_own(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest
        from confluent_kafka import Producer


        def send(broker):
            producer = Producer({"bootstrap.servers": broker.bootstrap})
            producer.produce("t", b"x")
            assert producer.flush(30) == 0


        def test_it(rotunda_broker, rotunda_brokers):
            other = rotunda_brokers({"num.io.threads": 1})
            here, there = (each.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=1) for each in (rotunda_broker, other))
            send(other)
            assert (here.count, there.count) == (0, 1)


        @pytest.fixture
        def producer(rotunda_brokers):
            broker = rotunda_brokers()
            producer = Producer({"bootstrap.servers": broker.bootstrap})
            yield broker, producer
            assert producer.flush(60) == 0


        def test_faults_end_before_the_fixtures_of_a_test(producer):
            broker, producer = producer
            broker.create_topic("t")
            fault = broker.delay("Produce", 3_600_000)
            producer.produce("t", b"x")
            while not fault.count:
                producer.poll(0.05)
        """,
    )
    result.assert_outcomes(passed=2)
