"""The epochs of a share session, and the order of its partitions."""

from __future__ import annotations

from rotunda.broker.partitions.share.share_session import ShareSession


def test_an_epoch_rises_with_each_request_and_begins_again_with_one() -> None:
    """S53."""
    session = ShareSession("m", 5, "ab")
    epochs = [session.epoch]
    session.update((), ())
    epochs.append(session.epoch)
    session.epoch = 2**31 - 1
    session.rise()
    assert [*epochs, session.epoch] == [1, 2, 1]


def test_partitions_are_added_before_others_are_forgotten() -> None:
    """S53, S55: the next response has the added ones."""
    session = ShareSession("m", 5, "ab")
    session.due.clear()
    session.update("bcd", "ad")
    assert (list(session.places), session.due) == (["b", "c"], {"c"})


def test_each_request_begins_with_another_partition() -> None:
    """S54."""
    session = ShareSession("m", 5, "abc")
    orders = []
    for _ in range(3):
        orders.append("".join(session.rotated()))
        session.rise()
    assert orders == ["bca", "cab", "abc"]


def test_partitions_that_gave_records_follow_the_others() -> None:
    """S54."""
    session = ShareSession("m", 5, "abc")
    session.served(["a"])
    assert list(session.places) == ["b", "c", "a"]
