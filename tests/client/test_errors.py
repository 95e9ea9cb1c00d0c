"""Errors of clients: each code of Kafka's becomes the error that has its name, and its word on trying again."""

from rotunda.broker.client.errors import NotLeaderOrFollower, RetriableError, ServerError, error_of
from rotunda.broker.protocol.error_codes import ErrorCode


def test_an_error_is_retriable_where_its_code_is():
    for code in ErrorCode:
        if code != ErrorCode.NONE:
            error = error_of(code)
            assert error.code == code
            assert error.retriable == code.retriable == isinstance(error, RetriableError), code.name
            assert error.kafka_name == code.name


def test_the_brokers_words_are_kept():
    assert str(error_of(ErrorCode.NOT_LEADER_OR_FOLLOWER, "gone")) == "gone"
    assert type(error_of(ErrorCode.NOT_LEADER_OR_FOLLOWER)) is NotLeaderOrFollower
    assert str(error_of(ErrorCode.REPLICA_NOT_AVAILABLE, "gone")) == "REPLICA_NOT_AVAILABLE: gone"


def test_a_code_of_a_newer_broker_is_an_error_with_its_number():
    error = error_of(9999)
    assert isinstance(error, ServerError)
    assert "9999" in str(error)
