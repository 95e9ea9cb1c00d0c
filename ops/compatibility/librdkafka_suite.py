"""librdkafka's own tests against a broker: its test-runner, one process per test, several at a time.

Command line: bootstrap address, the name of a suite, then features (none: all of it). Prints a line for each feature,
in the format of `outcomes`: the gates by their names, the others together. A feature is a test, or a test, a slash and
one of its subtests where the whole test is too slow or needs features that this broker lacks: an authorizer, SCRAM.

A suite has its own scenario or group protocol; the one for a broker whose handlers are killed has no tests that count
how often members join. No suite has the tests that need no broker, several brokers or a secured one.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

LIBRDKAFKA = "ROTUNDA_LIBRDKAFKA"
AT_ONCE = 6
LIMIT_SECONDS = 280.0
OTHERS = "the other tests of its suite"
# From 4.2 on the tests expect share groups.
KAFKA_VERSION = "4.1.0"
SHARE_KAFKA_VERSION = "4.2.0"
# The multiplier is the one of librdkafka's own runs. Names of topics must not recur in a second run.
CONFIGURATION = "bootstrap.servers={bootstrap}\ntest.topic.random=true\ntest.timeout.multiplier=2\n"
SUMMARY = re.compile(r"^\|\S* (\w+) +\| +(\w+) \| +[\d.]+s[^|]*\|(.*)$", re.MULTILINE)
FAULT = re.compile(r"^### Test \"(?!<MAIN>)(.*?) at [A-Z].*###\s*\n(.*)$", re.MULTILINE)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
REASON_CHARACTERS = 300

GROUP_GATES = (
    "0091_max_poll_interval_timeout",
    "0093_holb_consumer",
    "0130_store_offsets",
    "0102_static_group_rebalance",
    "0113_cooperative_rebalance/l_unsubscribe",
    "0113_cooperative_rebalance/n_wildcard",
    "0113_cooperative_rebalance/s_subscribe_when_rebalancing",
    "0113_cooperative_rebalance/t_max_poll_interval_exceeded",
    "0033_regex_subscribe",
)
# 0118 expects the effect of a generation: a late commit of a KIP-848 member that has not left is valid.
CLASSIC_GATES = ("0118_commit_rebalance", "0132_strategy_ordering", "0103_transactions")
GROUP_TESTS = (
    "0018_cgrp_term",
    "0019_list_groups",
    "0026_consume_pause",
    "0029_assign_offset",
    "0030_offset_commit",
    "0045_subscribe_update",
    "0045_resubscribe_with_regex",
    "0045_subscribe_many_updates",
    "0049_consume_conn_close",
    "0050_subscribe_adds",
    "0051_assign_adds",
    "0056_balanced_group_mt",
    "0061_consumer_lag",
    "0067_empty_topic",
    "0069_consumer_add_parts",
    "0089_max_poll_interval",
    "0099_commit_metadata",
    "0113_cooperative_rebalance",
    "0122_buffer_cleaning_after_rebalance",
    "0127_fetch_queue_backoff",
    "0137_barrier_batch_consume",
    "0140_commit_metadata",
)
# Without 0179: docs/compatibility.md has the reason.
SHARE_GATES = (
    "0170_share_consumer_subscription",
    "0171_share_consumer_consume",
    "0172_share_consumer_acknowledge",
    "0173_share_consumer_commit_async",
    "0174_share_consumer_concurrency",
    "0175_share_consumer_groups",
    "0176_share_consumer_commit_sync",
    "0177_share_consumer_transactions",
    "0178_share_consumer_close",
)
OTHER_TESTS = (
    "0001_multiobj",
    "0002_unkpart",
    "0003_msgmaxsize",
    "0005_order",
    "0007_autotopic",
    "0008_reqacks",
    "0011_produce_batch",
    "0012_produce_consume",
    "0013_null_msgs",
    "0014_reconsume_191",
    "0015_offsets_seek",
    "0016_client_swname",
    "0017_compression",
    "0020_destroy_hang",
    "0021_rkt_destroy",
    "0022_consume_batch",
    "0031_get_offsets",
    "0034_offset_reset",
    "0035_api_version",
    "0036_partial_fetch",
    "0038_performance",
    "0039_event_dr",
    "0040_io_event",
    "0041_fetch_max_bytes",
    "0042_many_topics",
    "0044_partition_cnt",
    "0048_partitioner",
    "0052_msg_timestamps",
    "0054_offset_time",
    "0055_producer_latency",
    "0057_invalid_topic",
    "0059_bsearch",
    "0060_op_prio",
    "0063_clusterid",
    "0064_interceptors",
    "0065_yield",
    "0068_produce_timeout",
    "0070_null_empty",
    "0073_headers",
    "0075_retry",
    "0076_produce_retry",
    "0077_compaction",
    "0081_admin/do_test_CreateTopics",
    "0081_admin/do_test_DeleteTopics",
    "0081_admin/do_test_CreatePartitions",
    "0081_admin/do_test_DescribeConfigs",
    "0081_admin/do_test_DeleteRecords",
    "0081_admin/do_test_ListConsumerGroups",
    "0081_admin/do_test_DescribeConsumerGroups",
    "0081_admin/do_test_DescribeTopics",
    "0081_admin/do_test_DescribeCluster",
    "0081_admin/do_test_DeleteGroups",
    "0081_admin/do_test_DeleteConsumerGroupOffsets",
    "0081_admin/do_test_ListOffsets",
    "0081_admin/do_test_AlterConsumerGroupOffsets",
    "0083_cb_event",
    "0084_destroy_flags",
    "0085_headers",
    "0086_purge_remote",
    "0088_produce_metadata_timeout",
    "0090_idempotence",
    "0094_idempotence_msg_timeout",
    "0112_assign_unknown_part",
    "0114_sticky_partitioning",
    "0123_connections_max_idle",
    "0125_immediate_flush",
    "0129_fetch_aborted_msgs",
)


@dataclass(frozen=True)
class Suite:
    """Tests that are run under the same conditions. Gates are run whole, the others in librdkafka's quick mode."""

    gates: tuple[str, ...]
    others: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


SUITES = {
    "classic": Suite((*GROUP_GATES, *CLASSIC_GATES), (*GROUP_TESTS, *OTHER_TESTS)),
    "consumer": Suite(GROUP_GATES, GROUP_TESTS, {"TEST_CONSUMER_GROUP_PROTOCOL": "consumer"}),
    "share": Suite(SHARE_GATES, environment={"TEST_KAFKA_VERSION": SHARE_KAFKA_VERSION}),
    "killed": Suite(
        (
            "0091_max_poll_interval_timeout",
            "0093_holb_consumer",
            "0118_commit_rebalance",
            "0130_store_offsets",
            "0102_static_group_rebalance",
            "0113_cooperative_rebalance/s_subscribe_when_rebalancing",
            "0033_regex_subscribe",
            "0103_transactions",
        )
    ),
    "noautocreate": Suite(
        (
            "0045_subscribe_update_topic_remove",
            "0045_subscribe_update_non_exist_and_partchange",
            "0107_topic_recreate",
            "0111_delay_create_topics",
        ),
        environment={"TEST_SCENARIO": "noautocreate"},
    ),
}


@dataclass(frozen=True)
class Runner:
    """librdkafka's test-runner and the broker that it is pointed to."""

    sources: Path
    bootstrap: str
    directory: Path
    environment: Mapping[str, str]

    def reason_of_failure(self, feature: str, *, quick: bool) -> str:
        """Run one feature to its end; return "" when it passed."""
        test, _, subtest = feature.partition("/")
        place = Path(tempfile.mkdtemp(prefix=f"{test}-", dir=self.directory))
        (place / "test.conf").write_text(CONFIGURATION.format(bootstrap=self.bootstrap))
        command = [str(self.sources / "tests" / "test-runner"), "-L", "-p1", *(["-Q"] if quick else [])]
        environment = {**os.environ, **self.environment, "TESTS": test, "RDKAFKA_TEST_CONF": str(place / "test.conf")}
        if subtest:
            environment["SUBTESTS"] = subtest
        with (place / "output").open("wb") as output:
            try:
                status: int | None = subprocess.run(
                    command,
                    cwd=place,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=LIMIT_SECONDS,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                status = None
        return reason(feature, (place / "output").read_text(errors="replace"), status)


def reason(feature: str, output: str, status: int | None) -> str:
    """Return why a feature has not passed, "" if it has. `status` is the test-runner's, None when it was killed."""
    test, _, subtest = feature.partition("/")
    plain = COLOUR.sub("", output)
    states = {name: (state, text.strip()) for name, state, text in SUMMARY.findall(plain)}
    state, text = states.get(test, ("", ""))
    if status == 0 and state == "PASSED":
        return "" if not subtest or re.search(rf"\[ {subtest}:.*: PASS ", plain) else "no such subtest was run"
    fault = FAULT.search(plain)
    if fault:
        found = f"{fault[1]}: {fault[2]}"
    elif state == "SKIPPED":
        found = f"skipped: {text}"
    else:
        found = "killed after its time" if status is None else f"status {status}, {state or 'no summary'} {text}"
    return " ".join(found.split())[:REASON_CHARACTERS]


def environment_of(sources: Path, bootstrap: str) -> dict[str, str]:
    home = Path(__file__).parent / "librdkafka"
    return {
        "LD_LIBRARY_PATH": f"{sources / 'src'}:{sources / 'src-cpp'}",
        "LD_PRELOAD": str(sources / "one_replica.so"),
        "TEST_KAFKA_VERSION": KAFKA_VERSION,
        "KAFKA_PATH": str(home / "kafka"),
        "BROKERS": bootstrap,
    }


def lines(suite: Suite, runner: Runner, wanted: tuple[str, ...]) -> Iterator[str]:
    """Run the suite, or the wanted features of it, and yield the lines to print."""
    gates = [name for name in suite.gates if not wanted or name in wanted]
    others = [name for name in suite.others if not wanted or name in wanted]
    names = [*gates, *([OTHERS] if others else [])]
    yield from (f"planned\t{name}\t" for name in names)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        waiting = [pool.submit(runner.reason_of_failure, name, quick=False) for name in gates]
        also = [pool.submit(runner.reason_of_failure, name, quick=True) for name in others]
        for name, one in zip(gates, waiting, strict=True):
            yield f"failed\t{name}\t{one.result()}" if one.result() else f"passed\t{name}\t"
        faults = [f"{name}: {one.result()}" for name, one in zip(others, also, strict=True) if one.result()]
    if faults:
        yield f"failed\t{OTHERS}\t{'; '.join(faults)}"
    elif others:
        yield f"passed\t{OTHERS}\t{len(others)} tests"


def main() -> None:
    bootstrap, name, *wanted = sys.argv[1:]
    suite, sources = SUITES[name], Path(os.environ[LIBRDKAFKA])
    with tempfile.TemporaryDirectory(prefix="rotunda-librdkafka-") as directory:
        environment = {**environment_of(sources, bootstrap), **suite.environment}
        for line in lines(suite, Runner(sources, bootstrap, Path(directory), environment), tuple(wanted)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
