"""Errors name the problem and have the data that their catcher needs, even from one process to another."""

import pickle

from rotunda.broker.errors import ApiError, BootFailed, InvalidReceive, RotundaError


def test_errors_carry_their_facts_and_survive_pickling() -> None:
    for error, text in (
        (ApiError(36), "error 36"),
        (ApiError(36, "Topic exists."), "error 36: Topic exists."),
        (InvalidReceive("size -1"), "size -1"),
        (BootFailed("port in use", 4), "port in use"),
    ):
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
        assert isinstance(error, RotundaError)
        assert str(copy) == str(error) == text
        assert copy.__dict__ == error.__dict__
