"""Texts for a terminal: nothing in them acts upon it, and long ones are cut."""

from rotunda.spark.results.text_table import cell, lines, printable


def test_what_a_terminal_would_act_upon_does_not_reach_it() -> None:
    assert printable("a\x1b[2Jb\nc") == "a?[2Jb?c"
    assert cell("x" * 50) == "x" * 39 + "…"
    assert lines(["name", "n"], [("\x07", 1), (None, 2000)]) == ["name      n", "?         1", "-     2,000"]
