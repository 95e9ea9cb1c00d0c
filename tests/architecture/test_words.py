"""No room has more of the words of ``tests/words.py`` than its ceiling."""

from __future__ import annotations

from tests.words import TARGETS, ceiling, ceilings, has_such_part, names_of, rates, room, texts

SOURCE = '''"""Says what ``what`` is."""
LIMIT = 3  # whoever takes it
"""The most that is told."""
NAME = "take one"
LINE = f"tell {NAME} to come back"
'''


def test_no_room_is_above_a_ceiling() -> None:
    above = [each for each in rates() if each.rate > ceiling(each.room, each.word)]
    assert not above, "reword the newest texts; `python -m tests.words` prints the rates"


def test_ceilings_are_of_rooms_and_words_that_exist_and_above_the_target() -> None:
    rooms = {each.room for each in rates()}
    for name, rows in ceilings().items():
        assert name in rooms
        assert all(most > TARGETS[word] for word, most in rows.items())


def test_docstrings_comments_and_long_literals_are_counted() -> None:
    found = list(texts("broker/m.py", SOURCE))
    assert sorted(found) == sorted(
        ["# whoever takes it", "Says what   is.", "The most that is told.", "tell {} to come back"]
    )


def test_names_with_parts_that_are_not_kafkas_words_are_counted() -> None:
    names = names_of("class AnswerFacts:\n    def go_on(self, what): self._returned = returned = what.turns")
    assert names == {"AnswerFacts", "go_on", "self", "what", "_returned", "returned"}
    assert {name for name in names if has_such_part(name)} == {"AnswerFacts", "go_on", "what"}


def test_comments_of_other_languages_are_counted() -> None:
    assert list(texts("web/a.js", "let a = 1; // what it takes\n/* whose */ b('http://x')")) == [
        " what it takes",
        " whose ",
    ]
    assert list(texts("ops/a.toml", "# what\na = 1  # whose\n")) == [" what", " whose"]


def test_a_room_is_a_package_of_the_broker_or_of_the_tests_or_a_directory_of_the_top() -> None:
    assert [
        room(path) for path in ("broker/log/a.py", "broker/a.py", "shm/rings/b.py", "docs/internals/c.md", "README.md")
    ] == [
        "broker/log",
        "broker",
        "shm",
        "docs/internals",
        "docs",
    ]
