"""The features of a client library: groups, static members, transactions; the same for each of them.

A feature of `checks` gets a bootstrap address; these are bound to a function that returns the library of it.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import count
from typing import Any

from checks import LIMIT_SECONDS, Feature, require, unique, until

from ops.clients.library import (
    ClientError,
    Isolation,
    Kind,
    Library,
    Member,
    Membership,
    Reader,
    Record,
    Remedy,
    ToSend,
)

Make = Callable[[str], Library]

#: Records of a transaction.
BATCH = 7
POLL_SECONDS = 0.5
#: Polls without a record until there is none.
IDLE_POLLS = 5


def bound(make: Make, feature: Callable[..., None], *arguments: Any) -> Feature:
    return lambda bootstrap: feature(make(bootstrap), *arguments)


def new_topic(library: Library, partitions: int = 4) -> str:
    name = unique("topic")
    library.make_topic(name, partitions)
    return name


def send(producer: Any, partitions: int, values: Iterable[str]) -> None:
    """Send values in turns to the partitions; all must be acknowledged."""
    records = [ToSend(number % partitions, None, value.encode()) for number, value in enumerate(values)]
    failed = [outcome for outcome in producer.send(records) if isinstance(outcome, str)]
    require(not failed, failed)


def fill(library: Library, topic: str, partitions: int, records: int, prefix: str = "v") -> None:
    """Produce this many values in turns to the partitions."""
    producer = library.producer(Kind.IDEMPOTENT, topic, "")
    send(producer, partitions, (f"{prefix}{number}" for number in range(records)))
    producer.close()


def poll(clients: Iterable[Member], into: list[str]) -> bool:
    """Poll each once; returns True, for use in conditions."""
    for client in clients:
        into += [record.value.decode() for record in client.poll(POLL_SECONDS)]
    return True


def committed_values(library: Library, topic: str, partitions: int, records: int) -> list[str]:
    """Return the values of a topic, without those of aborted transactions, once there are as many."""
    reader: Reader = library.reader(topic, Isolation.COMMITTED, dict.fromkeys(range(partitions), 0))
    values: list[str] = []

    def read() -> int:
        found = [record.value.decode() for record in reader.poll()]
        values.extend(found)
        return len(found)

    until(f"{records} values", lambda: read() >= 0 and len(values) >= records)
    for _ in range(IDLE_POLLS):
        read()
    reader.close()
    return values


def share(members: tuple[Member, Member], values: list[str]) -> None:
    """Wait until each has two of four partitions."""
    until(
        "two partitions each", lambda: poll(members, values) and [len(each.assignment()) for each in members] == [2, 2]
    )


def two_members(library: Library, protocol: str, assignor: str) -> None:
    """Share four partitions, leave, and continue with a third member from the committed offsets."""
    topic, membership = new_topic(library), Membership(unique("group"), protocol, assignor)
    values: list[str] = []
    first, second = (library.member(topic, membership, None) for _ in range(2))
    share((first, second), values)
    fill(library, topic, 4, 100)
    until("100 values", lambda: poll((first, second), values) and len(values) >= 100)
    require(len(set(values)) == len(values) == 100, f"{len(values)} values, {len(set(values))} different ones")
    for member in (first, second):
        member.commit(dict.fromkeys(member.assignment(), 25))
    second.close()
    until("all four", lambda: poll((first,), values) and len(first.assignment()) == 4)
    first.close()
    fill(library, topic, 4, 8, "later")
    third = library.member(topic, membership, None)
    found: list[str] = []
    until("8 later values", lambda: poll((third,), found) and len(found) >= 8)
    third.close()
    require(sorted(found) == [f"later{number}" for number in range(8)], found)


def static_member(library: Library, protocol: str, assignor: str) -> None:
    """Restart a static member: it gets its partitions again, without a rebalance of the other member."""
    topic, group = new_topic(library), unique("group")
    rebalances: list[int] = []
    values: list[str] = []
    one, other = (Membership(group, protocol, assignor, name) for name in "ab")
    first = library.member(topic, one, lambda partitions: rebalances.append(len(partitions)))
    second = library.member(topic, other, None)
    share((first, second), values)
    before, rebalanced = second.assignment(), len(rebalances)
    second.close()
    for _ in range(IDLE_POLLS):
        poll((first,), values)
    again = library.member(topic, other, None)
    until("its partitions", lambda: poll((first, again), values) and len(again.assignment()) == 2)
    require(again.assignment() == before, f"{again.assignment()} instead of {before}")
    require(len(rebalances) == rebalanced, "the one that stayed was rebalanced")
    for member in (again, first):
        member.close()


def transactions(library: Library) -> None:
    """Commit and abort alternately; only committed records are read."""
    topic = new_topic(library, 2)
    producer = library.producer(Kind.TRANSACTIONAL, topic, unique("tx"))
    for turn in range(6):
        producer.begin()
        send(producer, 2, (f"{'lost' if turn % 2 else 'kept'}-{turn}-{number}" for number in range(10)))
        (producer.abort if turn % 2 else producer.commit)()
    producer.close()
    values = committed_values(library, topic, 2, 30)
    require(len(values) == 30 and all(value.startswith("kept") for value in values), values)


def transform(library: Library, protocol: str) -> None:
    """Consume, transform, produce; every third transaction is aborted, and its records go to the next member."""
    source, target = new_topic(library, 2), new_topic(library, 2)
    fill(library, source, 2, 100)
    producer = library.producer(Kind.TRANSACTIONAL, target, unique("tx"))
    membership, turns, handled = Membership(unique("group"), protocol), count(1), 0

    def handle(records: list[Record], member: Member) -> bool:
        """Send the records changed in a transaction; return whether it was committed."""
        producer.begin()
        send(producer, 2, (record.value.decode().upper() for record in records))
        producer.send_offsets({record.partition: record.offset + 1 for record in records}, member)
        is_kept = next(turns) % 3 > 0
        (producer.commit if is_kept else producer.abort)()
        return is_kept

    end = time.monotonic() + 2 * LIMIT_SECONDS
    while handled < 100:
        member, goes_on = library.member(source, membership, None), True
        while goes_on and handled < 100:
            require(time.monotonic() < end, f"{handled} records were handled")
            records = member.poll(POLL_SECONDS)
            while records and goes_on:
                some, records = records[:BATCH], records[BATCH:]
                goes_on = handle(some, member)
                handled += len(some) if goes_on else 0
        member.close()
    producer.close()
    values = committed_values(library, target, 2, 100)
    require(sorted(values) == sorted(f"V{number}" for number in range(100)), f"{len(values)} values")


def fencing(library: Library) -> None:
    """Start a second producer of one transactional id: it fences the first."""
    topic, name = new_topic(library, 1), unique("tx")
    first = library.producer(Kind.TRANSACTIONAL, topic, name)
    first.begin()
    send(first, 1, ["lost"])
    second = library.producer(Kind.TRANSACTIONAL, topic, name)
    try:
        require(isinstance(first.send([ToSend(0, None, b"refused")])[0], str), "the first producer was not fenced")
        first.commit()
    except ClientError as fault:
        require(fault.remedy is not Remedy.RETRY, fault)
    else:
        raise AssertionError("the first producer was not fenced")
    for producer in (first, second):
        with suppress(ClientError):
            producer.close()


def of_groups(make: Make, assignors: tuple[str, ...], protocol: str = "classic") -> dict[str, Feature]:
    """Return the features of groups of a protocol with these assignors, and of transactions with their offsets."""
    kind, suffix = ("group", "") if protocol == "classic" else ("KIP-848 group", ", KIP-848 group")
    return {
        **{f"{kind}: {assignor}": bound(make, two_members, protocol, assignor) for assignor in assignors},
        f"{kind}: static member returns": bound(make, static_member, protocol, "range"),
        f"transactions: consume, transform, produce{suffix}": bound(make, transform, protocol),
    }


def of_transactions(make: Make) -> dict[str, Feature]:
    return {
        "transactions: commit and abort": bound(make, transactions),
        "transactions: a second producer fences the first": bound(make, fencing),
    }
