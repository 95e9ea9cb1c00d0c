"""Tables and names as they are printed."""

import time

import pytest

from rotunda.broker.text_table import aligned, fitted, printable, quoted


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("orders", "orders"),
        ("größe", "größe"),
        ("", '""'),
        ("-", '"-"'),
        ("a b", '"a b"'),
        ('a"b\\', '"a\\"b\\\\"'),
        ("a\nb\x1b[0m", '"a\\nb\\x1b[0m"'),
        ("\u202eabc", '"\\u202eabc"'),
    ],
)
def test_a_name_reads_as_one_word_that_moves_no_cursor(name: str, text: str) -> None:
    assert quoted(name) == text
    assert printable(quoted(name)) == quoted(name)


def test_numbers_stand_to_the_right_and_the_unknown_is_a_dash() -> None:
    rows = [("a", 1, 0.25, None), ("bcd", 100, None, None), ("名", None, 12.0, None)]
    assert aligned(("NAME", "LAG", "S", "X"), rows) == [
        "NAME  LAG     S  X",
        "a       1   0.2  -",
        "bcd   100     -  -",
        "名      -  12.0  -",
    ]


def test_the_longest_name_of_a_client_is_cut_at_once() -> None:
    """A group id has up to 32,767 bytes."""
    begin_s = time.process_time()
    assert [fitted("名" * 10_000, columns) for columns in (0, 1, 2, 5)] == ["", "…", "…", "名名…"]
    assert time.process_time() - begin_s < 5
