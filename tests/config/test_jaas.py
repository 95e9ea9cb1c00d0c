"""JAAS lines: those of stock files, and errors that show no secret."""

import pytest

from rotunda.broker.config.jaas import JaasLine, complaint, parse

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    "text",
    [
        f'{PLAIN} required username="admin" password="pa;ss" user_admin="pa;ss" user_alice="a=b";',
        f'  {PLAIN} Required\n  username="admin"\n  password=\'pa;ss\' user_admin = "pa;ss"\tuser_alice="a\\=b" ;  ',
        f'{PLAIN} required username=admin password="pa;ss" /* two */ user_admin="pa;ss" // one\n user_alice="a=b";',
    ],
)
def test_lines_as_files_have_them(text: str) -> None:
    options = {"username": "admin", "password": "pa;ss", "user_admin": "pa;ss", "user_alice": "a=b"}
    line = parse(text)
    assert line == JaasLine(PLAIN, options)
    assert line.users == {"admin": "pa;ss", "alice": "a=b"}


def test_escapes_are_read() -> None:
    assert parse(r'M required a="x\"y\\z\n";').options == {"a": 'x"y\\z\n'}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (f'{PLAIN} required user_alice="sesame"', "does not end with ;"),
        (f'{PLAIN} user_alice="sesame";', "required, requisite"),
        (f'{PLAIN} required user_alice "sesame";', "option number 1"),
        (f'{PLAIN} required a="sesame" user_alice="sesame;', "quotation mark"),
        (f'{PLAIN} required a="sesame"; M required b="sesame";', "option number 2|second login module"),
        ("", "does not end"),
    ],
)
def test_errors_show_nothing_of_the_secrets(text: str, wrong: str) -> None:
    found = complaint(text)
    assert found is not None
    assert any(each in found for each in wrong.split("|"))
    assert "sesame" not in found
