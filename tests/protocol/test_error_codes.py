"""The table of error codes, compared with kio's and Kafka's."""

from kio.schema.errors import ErrorCode as KioErrorCode

from rotunda.broker.protocol.error_codes import ErrorCode, text_of

#: Errors of Kafka 4.4 (V09), which kio's schemas are older than.
NEWER = {134, 135, 136}


def test_numbers_and_retriability_are_those_of_kio() -> None:
    ours = {int(error): error.retriable for error in ErrorCode if error not in NEWER}
    assert ours == {int(error): error.retriable for error in KioErrorCode}


def test_names_are_those_of_kio_in_capitals() -> None:
    assert {error.name for error in ErrorCode if error not in NEWER} == {error.name.upper() for error in KioErrorCode}


def test_every_error_has_a_text_and_no_success_has_one() -> None:
    assert {error.name for error in ErrorCode if not error.text} == {"NONE"}
    assert text_of(3) == "This server does not host this topic-partition."
    assert text_of(12345) == text_of(-1)
