"""`rotunda group`: its output and its exit codes, against a broker whose contents the test sets."""

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from rotunda.broker.cli.main import main
from rotunda.broker.client.consumer import lag
from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.primitives import string_bytes
from tests.client.admin.fake_broker import FakeBroker, Log
from tests.support.record_batches import record_batch

ODD = 'g 1\x1b[2J"'
ORDERS = [TopicPartition("orders", each) for each in range(3)]


class Done(NamedTuple):
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Done]


@pytest.fixture
def fake() -> FakeBroker:
    """Return a broker with an idle, a late and an unread partition and a group of each type."""
    member = {
        "member_id": "m-1",
        "client_id": "app",
        "client_host": "/10.0.0.1",
        "member_assignment": b"\0\0\0\0\0\1"
        + string_bytes("orders")
        + b"\0\0\0\2\0\0\0\1\0\0\0\0"
        + b"\xff\xff\xff\xff",
    }
    topics = [{"topic_name": "orders", "topic_id": bytes(15) + b"1", "partitions": [2, 0]}]
    joined = {
        "member_id": "m-2",
        "instance_id": "i",
        "client_id": "other app",
        "client_host": "/10.0.0.2",
        "member_epoch": 4,
        "assignment": {"topic_partitions": topics},
    }
    stable = {"group_state": "Stable", "protocol_type": "consumer"}
    return FakeBroker(
        logs={
            ORDERS[0]: Log([record_batch([b"v"] * 4)], end=4, time_offset=2),
            ORDERS[1]: Log([record_batch([b"v"] * 4)], start=1, end=4),
            ORDERS[2]: Log(),
        },
        offsets={
            "late": {ORDERS[0]: (4, 7, "done"), ORDERS[1]: (1, -1, "")},
            "empty": {ORDERS[0]: (2, -1, ""), TopicPartition("gone", 0): (5, -1, None)},
        },
        classic={
            "late": {**stable, "protocol_data": "range", "members": [member]},
            "empty": {**stable, "group_state": "Empty", "members": []},
            ODD: {"group_state": "Empty", "protocol_type": "connect", "members": []},
        },
        consumer={
            "modern": {"group_state": "Stable", "assignor_name": "uniform", "group_epoch": 4, "members": [joined]}
        },
    )


@pytest.fixture
def run(fake: FakeBroker, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Yield a function that runs `rotunda group` against the broker."""
    with fake.serving() as address:

        def command(*arguments: str) -> Done:
            code = main(["group", *arguments, "--bootstrap", address])
            printed = capsys.readouterr()
            return Done(code, printed.out, printed.err)

        yield command


def test_groups_are_listed_by_state_and_type(run: Run) -> None:
    done = run("list", "--json")
    assert (done.code, done.err) == (0, "")
    assert {"group": "modern", "type": "consumer", "state": "Stable", "protocol_type": "consumer"} in done.json
    assert [each["group"] for each in done.json] == ["empty", ODD, "late", "modern"]
    assert [each["group"] for each in run("list", "--json", "--state", "EMPTY").json] == ["empty", ODD]
    both = run("list", "--json", "--state", "stable", "--state", "Dead", "--type", "classic").json
    assert [each["group"] for each in both] == ["late"]


def test_a_table_is_aligned_and_odd_names_cannot_reach_the_terminal(run: Run) -> None:
    assert run("list").out.splitlines() == [
        "GROUP           TYPE      STATE   PROTOCOL",
        "empty           classic   Empty   consumer",
        '"g 1\\x1b[2J\\""  classic   Empty   connect',
        "late            classic   Stable  consumer",
        "modern          consumer  Stable  consumer",
    ]


def test_filters_that_a_broker_is_too_old_for_are_said_so(fake: FakeBroker, run: Run) -> None:
    fake.served[ApiKey.LIST_GROUPS] = (0, 4)
    assert run("list", "--json").json[0]["type"] is None
    done = run("list", "--type", "classic")
    assert done.code == 1
    assert "does not serve LIST_GROUPS in version 5 or newer" in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("list", "--state", "asleep"),
        ("list", "--type", "modern"),
        ("describe",),
        ("delete",),
        ("reset-offsets", "g", "--to-latest"),
        ("reset-offsets", "g", "--all-topics"),
        ("reset-offsets", "g", "--all-topics", "--to-latest", "--to-earliest"),
        ("reset-offsets", "g", "--all-topics", "--topic", "t", "--to-latest"),
        ("reset-offsets", "g", "--all-topics", "--to-latest", "--execute", "--dry-run"),
    ],
)
def test_the_parser_rejects(run: Run, arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(*arguments)
    assert ended.value.code == 2


def test_describe_a_classic_group(run: Run) -> None:
    done = run("describe", "late", "--json").json
    partitions = done.pop("partitions")
    assert done == {
        "group": "late",
        "type": "classic",
        "state": "Stable",
        "protocol_type": "consumer",
        "assignor": "range",
        "epoch": None,
        "coordinator": {"id": 1, "host": "here", "port": 9092},
        "members": [
            {
                "member_id": "m-1",
                "instance_id": None,
                "client_id": "app",
                "host": "/10.0.0.1",
                "epoch": None,
                "assignment": [{"topic": "orders", "partition": 0}, {"topic": "orders", "partition": 1}],
                # Unknown for a broker that does not run here.
                "silent_seconds": None,
                "session_left_seconds": None,
            }
        ],
        "isolation_level": "read_uncommitted",
    }
    assert partitions[0] == {
        "topic": "orders",
        "partition": 0,
        "committed_offset": 4,
        "committed_leader_epoch": 7,
        "committed_metadata": "done",
        "log_start_offset": 0,
        "log_end_offset": 4,
        "last_stable_offset": 4,
        "lag_records": 0,
        "lag_seconds": 0.0,
        "member_id": "m-1",
        "notes": [],
    }
    assert partitions[1]["lag_records"] == 3
    assert partitions[1]["lag_seconds"] > 1e6


def test_describe_a_consumer_group(run: Run) -> None:
    done = run("describe", "modern", "--read-committed", "--json").json
    assert (done["type"], done["epoch"], done["assignor"]) == ("consumer", 4, "uniform")
    assert done["isolation_level"] == "read_committed"
    assert [(each["partition"], each["committed_offset"]) for each in done["partitions"]] == [(0, None), (2, None)]
    assert {each["lag_records"] for each in done["partitions"]} == {None}
    lines = run("describe", "modern").out.splitlines()
    assert lines[0] == (
        "group modern type=consumer state=Stable protocol=consumer assignor=uniform members=1 "
        "coordinator=1@here:9092 epoch=4"
    )
    assert lines[3] == 'm-2     i         "other app"  /10.0.0.2  orders:0,2  -          -'


def test_a_deleted_topic_keeps_its_row(run: Run) -> None:
    """users.md row 17: unknown is not zero."""
    gone, orders = run("describe", "empty", "--json").json["partitions"]
    assert (gone["topic"], gone["committed_offset"], gone["committed_metadata"]) == ("gone", 5, "")
    assert (gone["log_end_offset"], gone["lag_records"], gone["lag_seconds"]) == (None, None, None)
    assert gone["notes"] == [lag.NO_PARTITION]
    assert orders["lag_records"] == 2
    line = run("describe", "empty").out.splitlines()[3]
    assert line.split()[:9] == ["gone", "0", "5", "-", "-", "-", "-", "-", "-"]
    assert line.endswith(lag.NO_PARTITION)


def test_describe_an_unknown_group(fake: FakeBroker, run: Run) -> None:
    done = run("describe", ODD + "x")
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        'rotunda: GROUP_ID_NOT_FOUND: unknown group "g 1\\x1b[2J\\"x"; did you mean "g 1\\x1b[2J\\""?\n'
    )
    # Brokers without KIP-848 and KIP-1043 respond with the state Dead.
    del fake.served[ApiKey.CONSUMER_GROUP_DESCRIBE]
    fake.classic["nobody"] = {"group_state": "Dead", "members": []}
    assert run("describe", "nobody").err.startswith("rotunda: GROUP_ID_NOT_FOUND: ")


def test_members_that_only_their_own_kind_understands(fake: FakeBroker, run: Run) -> None:
    member = {"member_id": "w", "client_id": "c", "client_host": "/h", "member_assignment": b"\0\1secret"}
    fake.classic["connect"] = {"group_state": "Stable", "protocol_type": "connect", "members": [member]}
    assert run("describe", "connect", "--json").json["members"][0]["assignment"] is None
    fake.classic["broken"] = {"group_state": "Stable", "protocol_type": "consumer", "members": [member]}
    assert run("describe", "broken", "--json").json["members"][0]["assignment"] is None


def test_a_coordinator_that_loads_is_waited_for(fake: FakeBroker, run: Run) -> None:
    loading = {"error_code": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    fake.responses[ApiKey.LIST_GROUPS] = [loading, loading]
    assert len(run("list", "--json").json) == 4
    fake.responses[ApiKey.CONSUMER_GROUP_DESCRIBE] = [{"groups": [{"group_id": "modern", **loading}]}]
    assert run("describe", "modern").code == 0


def test_groups_with_members_are_not_deleted(run: Run) -> None:
    assert run("delete", "empty", ODD).out == 'deleted group empty\ndeleted group "g 1\\x1b[2J\\""\n'
    done = run("delete", "empty", "late", "modern", "nobody", "--json")
    assert done.code == 1
    assert [(each["group"], each["deleted"], each["error"]) for each in done.json] == [
        ("empty", True, None),
        ("late", False, "NON_EMPTY_GROUP"),
        ("modern", False, "NON_EMPTY_GROUP"),
        ("nobody", False, "GROUP_ID_NOT_FOUND"),
    ]
    assert done.err.splitlines() == [
        "rotunda: NON_EMPTY_GROUP: group late has members: m-1 (client app at /10.0.0.1); stop them first",
        'rotunda: NON_EMPTY_GROUP: group modern has members: m-2 (client "other app" at /10.0.0.2); stop them first '
        "and wait, as static members stay until their session ends",
        "rotunda: GROUP_ID_NOT_FOUND: unknown group nobody; see `rotunda group list`",
    ]


def test_a_reset_is_shown_and_only_with_execute_done(fake: FakeBroker, run: Run) -> None:
    arguments = ("reset-offsets", "empty", "--topic", "orders", "--to-earliest")
    shown = run(*arguments)
    assert shown.code == 0
    assert shown.out.splitlines() == [
        "TOPIC   PARTITION  BEFORE  AFTER  NOTE",
        "orders          0       2      0",
        "orders          1       -      1",
        "orders          2       -      0",
        "no offsets were changed: use --execute to set them",
    ]
    assert fake.offsets["empty"][ORDERS[0]][0] == 2
    done = run(*arguments, "--execute", "--json").json
    assert (done["group"], done["executed"]) == ("empty", True)
    assert done["partitions"][0] == {
        "topic": "orders",
        "partition": 0,
        "before": 2,
        "after": 0,
        "warning": None,
        "error": None,
    }
    assert [fake.offsets["empty"][each][0] for each in ORDERS] == [0, 1, 0]


@pytest.mark.parametrize(
    ("goal", "after", "warned"),
    [
        (("--to-earliest",), [0, 1, 0], [False, False, False]),
        (("--to-latest",), [4, 4, 0], [False, False, False]),
        (("--to-offset", "3"), [3, 3, 0], [False, False, True]),
        (("--to-offset", "0"), [0, 1, 0], [False, True, False]),
        (("--to-current",), [2, 4, 0], [False, True, True]),
        (("--to-datetime", "2023-01-01T00:00:00.000"), [2, 4, 0], [False, True, True]),
        (("--by-duration", "P1DT2H3M4.5S"), [2, 4, 0], [False, True, True]),
        (("--by-duration", "P999999D"), [2, 4, 0], [False, True, True]),
    ],
)
def test_a_reset_goes_to_the_nearest_offset_in_range(
    run: Run, goal: tuple[str, ...], after: list[int], warned: list[bool]
) -> None:
    """An offset out of range becomes the nearest one, and each such change is reported, as in Kafka's tool."""
    done = run("reset-offsets", "empty", "--topic", "orders", *goal, "--json").json
    assert [each["after"] for each in done["partitions"]] == after
    assert [each["warning"] is not None for each in done["partitions"]] == warned


@pytest.mark.parametrize(("shift", "after"), [("1", 3), ("-1", 1), ("-9", 0), ("9", 4)])
def test_a_shift_ends_at_the_end_of_the_partition(run: Run, shift: str, after: int) -> None:
    done = run("reset-offsets", "empty", "--topic", "orders:0", "--shift-by", shift, "--json").json
    assert [each["after"] for each in done["partitions"]] == [after]


def test_a_time_is_utc_unless_it_names_a_zone(fake: FakeBroker, run: Run) -> None:
    for text in ("1970-01-02T00:00:01.5", "1970-01-02T02:00:01.500+02:00", "1970-01-02T00:00:01.500Z"):
        run("reset-offsets", "empty", "--topic", "orders:0", "--to-datetime", text)
        assert fake.asked[-1][1].topics[0].partitions[0].timestamp == 86_401_500


def test_all_topics_are_those_with_offsets_and_a_deleted_one_stays(run: Run) -> None:
    done = run("reset-offsets", "empty", "--all-topics", "--to-latest", "--execute", "--json").json
    assert [(each["topic"], each["before"], each["after"]) for each in done["partitions"]] == [
        ("gone", 5, None),
        ("orders", 2, 4),
    ]


def test_a_group_that_does_not_exist_yet_may_be_given_offsets(fake: FakeBroker, run: Run) -> None:
    assert (
        run("reset-offsets", "new", "--topic", "orders:0,1", "--topic", "orders:0", "--to-latest", "--execute")[0] == 0
    )
    assert {each: value[0] for each, value in fake.offsets["new"].items()} == {ORDERS[0]: 4, ORDERS[1]: 4}


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (("late", "--all-topics"), 1, "late is in state Stable, with members m-1 (client app at /10.0.0.1); stop"),
        (("nobody", "--all-topics"), 1, "group nobody has no offsets: name topics with --topic"),
        (("empty", "--topic", "nowhere"), 1, "unknown topic nowhere"),
        (("empty", "--topic", "orders:0,7"), 1, "orders has partitions 0 to 2, not 7"),
        (("empty", "--topic", "orders:"), 2, "--topic orders:: expected TOPIC or TOPIC:PARTITION,..."),
        (("empty", "--topic", "orders:a"), 2, "--topic orders:a: expected"),
        (("empty", "--topic", ":1"), 2, "--topic :1: expected"),
    ],
)
def test_what_a_reset_rejects(run: Run, arguments: tuple[str, ...], code: int, complaint: str) -> None:
    done = run("reset-offsets", *arguments, "--to-latest", "--execute")
    assert (done.code, done.out) == (code, "")
    assert complaint in done.err


@pytest.mark.parametrize(
    ("goal", "code"),
    [
        (("--shift-by", "1"), 1),
        (("--to-offset", "-1"), 2),
        (("--to-datetime", "yesterday"), 2),
        (("--to-datetime", "1969-12-31"), 2),
        (("--by-duration", "P"), 2),
        (("--by-duration", "PT"), 2),
        (("--by-duration", "1 day"), 2),
        (("--by-duration", "-P1D"), 2),
        (("--by-duration", "P1Y"), 2),
        (("--by-duration", "P99999999999999999999D"), 2),
    ],
)
def test_goals_that_make_no_sense(run: Run, goal: tuple[str, ...], code: int) -> None:
    option, value = goal
    done = run("reset-offsets", "empty", "--topic", "orders", f"{option}={value}")
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("rotunda: cannot shift orders-1" if code == 1 else f"rotunda: {option} {value}: ")


def test_a_partition_that_is_rejected_is_named(fake: FakeBroker, run: Run) -> None:
    codes = {"orders": ErrorCode.UNKNOWN_MEMBER_ID}
    fake.responses[ApiKey.OFFSET_COMMIT] = [
        {
            "topics": [
                {"name": name, "partitions": [{"partition_index": 0, "error_code": c}]} for name, c in codes.items()
            ]
        }
    ]
    done = run("reset-offsets", "empty", "--topic", "orders:0", "--to-latest", "--execute", "--json")
    assert done.code == 1
    assert done.json["partitions"][0]["error"] == "UNKNOWN_MEMBER_ID"
    assert done.err.startswith("rotunda: orders-0: UNKNOWN_MEMBER_ID: not set: the group has members now")
