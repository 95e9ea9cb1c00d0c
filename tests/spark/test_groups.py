"""The report on groups: rebalances, members and lag of a log, compared with plain Python row by row."""

import argparse
import random
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql import SparkSession

from rotunda.spark.hourly.rollups import Rollups
from rotunda.spark.job import Context
from rotunda.spark.jobs.groups import DELIVERY_COUNTS, JOB, MEMBER_EVENTS
from rotunda.spark.log.request_log import RequestLog
from rotunda.spark.results.result import Result
from rotunda.spark.time_range import TimeRange
from tests.spark.duck import ask, assert_same
from tests.spark.questions import MEMBERS
from tests.support.feeds import random_seed
from tests.support.generated_log import START, request, write

NOW = datetime(2026, 3, 2, tzinfo=UTC)
LENGTH_S = 900
RANGE = (f"{START:%Y-%m-%dT%H:%M:%S}", f"{START + timedelta(seconds=LENGTH_S):%Y-%m-%dT%H:%M:%S}")
LATER_COLUMNS = ("kind", "generation", "members", "durationUs", "topic", "partition", "records", *DELIVERY_COUNTS)
REASONS = {
    "Adding new member {id} with group instance id None; client reason: not provided":
        "Adding new member … with group instance id …",
    "explicit `LeaveGroup` request for ({id}, {id}) members.": "explicit `LeaveGroup` request for (…) members.",
    "Leader re-joining {id} during Stable; client reason: poll took too long":
        "Leader re-joining … during Stable; client reason: poll took too long",
    "join of member p1XxZ-_9: with instance id a b": "join of member …: with instance id … b",
}  # fmt: skip

Rows = list[dict[str, Any]]


def report(spark: SparkSession, log_path: Path, *words: str) -> Result:
    parser = argparse.ArgumentParser()
    JOB.add_options(parser)
    log = RequestLog(spark, str(log_path))
    rollups = Rollups(spark, str(log_path / "rollups"), log)
    return JOB.answer(Context(spark, log, rollups, TimeRange.of(*RANGE, NOW), parser.parse_args(words), NOW))


def at(milliseconds: int) -> datetime:
    return START + timedelta(milliseconds=milliseconds)


def random_rebalances(chance: random.Random, group: str) -> tuple[Rows, Rows]:
    """Return events of a group and their rebalances: the last without an end."""
    events, truth = [], []
    now_ms, generation, members = chance.randrange(1000), 0, 0
    for number in range(20):
        members = max(0, members + chance.choice([1, 1, -1]))
        kind = chance.choice([name for name in MEMBER_EVENTS if members or name == "leave"])
        base = {"group": group, "kind": "classic", "handler": 0, "members": members}
        who = f"member-{chance.randrange(5)}"
        events.append(
            base | {"time": at(now_ms), "event": kind, "member": who, "reason": "not provided", "generation": 0}
        )
        began_ms, causes = now_ms, []
        for _ in range(chance.choice([1, 1, 2])):
            reason = chance.choice(list(REASONS))
            causes.append(REASONS[reason])
            text = reason.format(id=f"app-{UUID(int=chance.getrandbits(128))}")
            events.append(base | {"time": at(now_ms), "event": "rebalance", "reason": text, "generation": generation})
            # The order of two that begin in one millisecond would be undefined.
            now_ms += chance.choice([1, 7, 20_000])
        row = {
            "group": group,
            "start": at(began_ms),
            "cause": causes[0],
            "begun": len(causes),
            "members": None,
            "tookS": None,
        }
        if number < 19:
            now_ms -= chance.choice([0, 1]) if len(causes) == 1 else 0
            generation += 1
            end = "empty" if members == 0 else "stable"
            took_us = (now_ms - began_ms) * 1000
            ended = {"time": at(now_ms), "event": end, "reason": "", "generation": generation, "durationUs": took_us}
            events.append(base | ended)
            row |= {"outcome": end, "end": at(now_ms), "members": members, "tookS": took_us / 1e6}
            now_ms += chance.choice([0, 10_000, 40_000])
        else:
            row |= {"outcome": "unfinished", "end": None}
        truth.append(row)
    return events, truth


def random_lag(chance: random.Random, group: str, topics: int) -> Rows:
    """Return rows of lag on whole seconds, some of unknown age."""
    found = []
    for topic in range(topics):
        for second in sorted(chance.sample(range(5, LENGTH_S), 40)):
            records = chance.choice([0, 0, 50, 200, 1000])
            age = 0 if records == 0 else chance.choice([None, 1, 5, 40, 200])
            found.append({
                "time": at(second * 1000), "group": group, "event": "lag", "handler": 0, "topic": f"t{topic}",
                "records": records, "durationUs": None if age is None else age * 1_000_000,
            })  # fmt: skip
    return found


class Lag:
    """The state of lag rows at a moment: unread records and ages by topic, as a reader of the rows computes them."""

    def __init__(self, rows: Rows) -> None:
        self.by_topic: dict[str, Rows] = defaultdict(list)
        for row in rows:
            self.by_topic[row["topic"]].append(row)

    def records(self, time: datetime) -> int:
        return sum(row["records"] for row in self._latest(time).values())

    def ages(self, time: datetime) -> dict[str, float]:
        """Return the known ages in seconds."""
        found = {}
        for topic, row in self._latest(time).items():
            if row["records"] == 0:
                found[topic] = 0.0
            elif row["durationUs"] is not None:
                found[topic] = row["durationUs"] / 1e6 + (time - row["time"]).total_seconds()
        return found

    def _latest(self, time: datetime) -> dict[str, dict[str, Any]]:
        return {
            topic: max(known, key=lambda row: row["time"])
            for topic, rows in self.by_topic.items()
            if (known := [row for row in rows if row["time"] <= time])
        }


def expected_episodes(group: str, lag: Lag, records: int, age_s: int, for_s: int) -> list[tuple[Any, ...]]:
    """Return the episodes, found second by second: nothing changes within one."""
    found, second = [], 0
    while second < LENGTH_S:
        first, peak, area, peak_age = second, 0, 0, None
        while second < LENGTH_S:
            here = lag.records(at(second * 1000))
            ages = lag.ages(at(second * 1000)).items()
            # Ages of unread records; 0 where there are none.
            unread = [age for topic, age in ages if lag._latest(at(second * 1000))[topic]["records"] > 0]
            if not (here > records or any(age >= age_s for age in unread)):
                break
            peak, area = max(peak, here), area + here
            peak_age = max([age + 1 for age in unread] + ([] if peak_age is None else [peak_age]), default=None)
            second += 1
        if second - first >= for_s and second > first:
            found.append((group, first, second, second == LENGTH_S, float(second - first), peak, peak_age, float(area)))
        second = second + 1 if second == first else second
    return found


def test_a_random_log_row_by_row(spark: SparkSession, tmp_path: Path) -> None:
    seed = random_seed()
    print(f"seed {seed}")
    chance = random.Random(seed)
    events, truth, lags = [], [], {}
    for number, group in enumerate(["mailer", "billing"]):
        of_group, rebalances = random_rebalances(chance, group)
        lag = random_lag(chance, group, number + 1)
        events += of_group + lag
        truth += rebalances
        lags[group] = Lag(lag)
    in_range = [row for row in events if row["time"] < at(LENGTH_S * 1000)]
    write(tmp_path, "groups", events)
    write(tmp_path, "requests", [request(at(LENGTH_S * 1000) - timedelta(microseconds=1))])
    found = report(spark, tmp_path, "--lag-records=900", "--lag-age=30s", "--for=20s")
    found.tables["rebalances"].createOrReplaceTempView("rebalances")

    rows = found.tables["rebalances"].collect()
    seen = {
        (row.group, round(row.start.timestamp(), 3), row.cause, row.begun, row.outcome, row.members, row.tookS)
        for row in rows
    }
    in_time = [row for row in truth if row["start"] < at(LENGTH_S * 1000)]
    for row in in_time:
        if row["end"] is not None and row["end"] >= at(LENGTH_S * 1000):
            row |= {"end": None, "outcome": "unfinished", "members": None, "tookS": None}
            row["begun"] = None
    wanted = {
        (
            row["group"],
            round(row["start"].timestamp(), 3),
            row["cause"],
            row["begun"],
            row["outcome"],
            row["members"],
            row["tookS"],
        )
        for row in in_time
        if row["begun"]
    }
    assert not wanted - seen
    assert len(rows) == len(in_time)
    for row in rows:
        assert row.unreadS == pytest.approx(unread_of(lags[row.group], row)), row

    assert_same(
        [(row.group, row.event, row.times, row.members) for row in found.tables["members"].collect()],
        ask(tmp_path, "groups", RANGE, MEMBERS),
    )  # fmt: skip
    behind = [episode for group, lag in lags.items() for episode in expected_episodes(group, lag, 900, 30, 20)]
    assert_same(
        [(row.group, round(row.start.timestamp() - START.timestamp()), round(row.end.timestamp() - START.timestamp()),
          row.goesOn, *row[4:]) for row in found.tables["episodes"].collect()], behind,
    )  # fmt: skip
    assert_adds_up(found, rows, behind, in_range)


def assert_adds_up(found: Result, rows: list[Any], behind: list[tuple[Any, ...]], events: Rows) -> None:
    """Compare the tables by group and cause with the sums of single rows."""
    summed = Counter(row.group for row in rows)
    for row in found.tables["groups"].collect():
        took = [each.tookS for each in rows if each.group == row.group and each.tookS is not None]
        assert (row.rebalances, row.longestS) == (summed[row.group], max(took))
        assert row.rebalancingS == pytest.approx(sum(took))
        of_group = [each for each in behind if each[0] == row.group]
        assert (row.episodes, row.behindS or 0) == (len(of_group), sum(each[4] for each in of_group))
        counts = Counter(each["event"] for each in events if each["group"] == row.group)
        assert all(row[column] == counts[name] for name, column in MEMBER_EVENTS.items())
    per_cause = Counter((row.group, row.cause) for row in rows)
    assert {(row.group, row.cause): row.rebalances for row in found.tables["causes"].collect()} == per_cause


def unread_of(lag: Lag, row: Any) -> float | None:
    """Return how much the oldest unread record aged during a rebalance, in the topic that had most."""
    if row.end is None:
        return None
    start, end = (lag.ages(datetime.fromtimestamp(time.timestamp(), UTC)) for time in (row.start, row.end))
    grown = [end[topic] - start[topic] for topic in start.keys() & end.keys()]
    return max(0.0, *grown) if grown else None


def test_a_log_of_an_older_broker(spark: SparkSession, tmp_path: Path) -> None:
    """Without its columns lengths are computed from the times, and the lag is reported as unknown."""
    row = {"group": "old", "handler": 0, "reason": "why"}
    events = [row | {"time": at(1000), "event": "rebalance"}, row | {"time": at(3500), "event": "stable"}]
    write(tmp_path, "groups", events, without=LATER_COLUMNS)
    write(tmp_path, "requests", [request(at(5000))])
    found = report(spark, tmp_path)
    (only,) = found.tables["groups"].collect()
    assert (only.rebalances, only.unfinished, only.rebalancingS, only.unreadS) == (1, 0, 2.5, None)
    assert "not known" in found.headline
    assert found.facts["hasLag"] is False


def test_what_a_group_has_not_read_does_not_age_beyond_the_log(spark: SparkSession, tmp_path: Path) -> None:
    row = {"group": "late", "handler": 0, "event": "lag", "topic": "t", "records": 10, "durationUs": 50_000_000}
    write(tmp_path, "groups", [row | {"time": at(0)}])
    write(tmp_path, "requests", [request(at(100_000))])
    found = report(spark, tmp_path)
    (episode,) = found.tables["episodes"].collect()
    assert episode.goesOn
    assert (episode.lengthS, episode.peakAgeS) == (pytest.approx(90, abs=0.01), pytest.approx(150, abs=0.01))
    # The lag over time, in steps of 5 s up to the end of the log.
    assert found.chart is not None
    assert found.chart.labels[:2] == [f"{at(0):%H:%M:%S}", f"{at(5000):%H:%M:%S}"]
    assert [(each.name, list(each.values)) for each in found.chart.series] == [("late", [10.0] * 21)]


def test_deliveries_of_share_groups_are_summed_over_topics_and_time(spark: SparkSession, tmp_path: Path) -> None:
    nothing = dict.fromkeys(DELIVERY_COUNTS, 0)
    row = {"handler": 1, "kind": "share"}
    counted = row | nothing | {"event": "deliveries", "delivered": 10}
    lag = row | {"event": "lag", "group": "queue", "topic": "a", "durationUs": 0}
    events = [
        counted | {"group": "queue", "topic": "a", "time": at(0), "redelivered": 4, "locksExpired": 4},
        counted | {"group": "queue", "topic": "b", "time": at(2000), "accepted": 9, "rejected": 1, "deadLetters": 1},
        counted | {"group": "calm", "topic": "a", "time": at(1000), "accepted": 10},
        lag | {"time": at(0), "records": 50},
        lag | {"time": at(1000), "records": 20},
        lag | {"time": at(500), "topic": "b", "records": 7},
    ]
    write(tmp_path, "groups", events)
    write(tmp_path, "requests", [request(at(5000))])
    found = report(spark, tmp_path)
    assert [tuple(each) for each in found.tables["shares"].collect()] == [
        ("queue", 20, 4, 0.2, 9, 0, 1, 4, 1, 27, 57),
        ("calm", 10, 0, 0.0, 10, 0, 0, 0, 0, None, None),
    ]
    assert found.headline.endswith("share group queue: 20 records delivered, 4 of them again; 4 locks ran out")
