"""The kinds of errors, and the rule for choosing one.

Every process uses this module; it imports nothing of ours.

An expected outcome (full, empty, not there yet) is a return value and never one of these. For the rest:

- the client sent a request that Kafka has an error code for: `ApiError`, which is returned in the response;
- the bytes of a connection do not form a request: `InvalidReceive`, which is logged and closes the
  connection;
- a process cannot start: `BootFailed`, which stops the start with a reason instead of a restart
  loop;
- the configuration or the command line is wrong: `ConfigError`, `UsageError`, shown to the person who typed
  it;
- anything else is our own bug and keeps its own type: it is caught once, at the loop step.
"""

import re
from collections.abc import Iterable


class RotundaError(Exception):
    """Root of the failures that this program raises on purpose."""


class ApiError(RotundaError):
    """A request is rejected with a Kafka error code; the connection stays open."""

    def __init__(self, code: int, message: str | None = None) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"error {self.code}" if self.message is None else f"error {self.code}: {self.message}"


class InvalidReceive(RotundaError):  # noqa: N818 - the protocol's word for it
    """The bytes received are not a request that this broker can read.

    No response is possible (`C02`, `C07`).
    """

    #: Counted as the cause of the connection's end.
    cause = "invalid_request"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    @property
    def kind(self) -> str:
        """The reason without its numbers, which the sender chooses: the key for counting repeated warnings."""
        return re.sub(r"\d+", "#", self.reason)


class TooManyElements(InvalidReceive):
    """A request has more elements in its arrays than allowed."""


class AuthenticationFailed(InvalidReceive):
    """A client fails to authenticate, or to agree on a mechanism: its connection ends at once (`B22`)."""

    cause = "failed_authentication"


class BootFailed(RotundaError):  # noqa: N818 - the protocol's word for it
    """A process cannot start; `exit_code` is the exit status of the command."""

    def __init__(self, reason: str, exit_code: int = 1) -> None:
        super().__init__(reason, exit_code)
        self.reason = reason
        self.exit_code = exit_code

    def __str__(self) -> str:
        return self.reason


class ConfigError(RotundaError):
    """A property is unknown, malformed, out of range, or contradicts another one; ``names`` are those involved."""

    def __init__(self, reason: str, names: Iterable[str] = ()) -> None:
        super().__init__(reason)
        self.names = tuple(names)


class UsageError(RotundaError):
    """The command line is invalid."""
