"""Access of the APIs that change metadata to the controller object of their process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.errors import ApiError
from rotunda.broker.ipc.request import Request
from rotunda.broker.metadata.active_controller import ActiveController
from rotunda.broker.metadata.controller import Controller
from rotunda.broker.quotas.controller_mutations import ControllerMutationQuota


def controller_of(broker: BrokerContext) -> Controller:
    """Return the controller. Only the controller process has one: a misrouted request is our bug."""
    return _active(broker).controller


def announce(broker: BrokerContext) -> None:
    """Notify every process of the controller's changes."""
    _active(broker).announce()


def _active(broker: BrokerContext) -> ActiveController:
    if broker.controller is None:
        raise RuntimeError("this API is served by the controller only")
    return broker.controller


def mutation_quota_of(request: Request, broker: BrokerContext, strict_from: int) -> ControllerMutationQuota:
    """Return the quota of a request that creates or deletes partitions, strict from that version on."""
    sensors = broker.quotas.of_client(request.session.user, request.client_id)
    meter = None if sensors is None else sensors.mutation
    return ControllerMutationQuota(meter, broker.clock.monotonic_ns, strict=request.api_version >= strict_from)


def request_id_of(request: Request) -> str:
    """Return the text by which the controller recognises a request that is sent again: unique within a run."""
    return f"{request.connection_id}-{request.sequence}-{request.received_ns}"


#: Resources or entities changed in one slice, with one change of the metadata, and their settings or quotas.
ALTERED_AT_ONCE = 20
_CHANGES_AT_ONCE = 200

#: Slices announced together: fewer would make every process that follows quotas check all of them for each change, more
#: would give it thousands of changes at once.
ANNOUNCED_AT_ONCE = 10

#: Most settings of one resource, or quotas of one entity, in a request: less than half as many exist.
MOST_CHANGES = 1000
TOO_MANY_CHANGES = f"More than {MOST_CHANGES} changes of one thing"

_Asked = TypeVar("_Asked")


def portions(
    asked: Iterable[_Asked],
    changes_of: Callable[[_Asked], int],
    is_alone: Callable[[_Asked], bool] = lambda _: False,
) -> Iterator[list[_Asked]]:
    """Yield the things to change in order, in portions for one slice; ``is_alone``: in a portion of its own."""
    portion: list[_Asked] = []
    changes = 0
    for each in asked:
        if portion and (is_alone(each) or len(portion) == ALTERED_AT_ONCE or changes >= _CHANGES_AT_ONCE):
            yield portion
            portion, changes = [], 0
        portion.append(each)
        # More changes than the limit are rejected, and need no time.
        changes += min(changes_of(each), MOST_CHANGES)
        if is_alone(each):
            yield portion
            portion, changes = [], 0
    if portion:
        yield portion


def alter_each(
    controller: Controller, asked: Sequence[_Asked], alter: Callable[[_Asked], None]
) -> list[ApiError | None]:
    """Alter several things with one change of the metadata; return the error of each, or None."""
    failures: list[ApiError | None] = []
    try:
        with controller.together():
            for each in asked:
                try:
                    alter(each)
                except ApiError as error:
                    # A traceback that holds the list would keep itself alive until a collection.
                    failures.append(error.with_traceback(None))
                else:
                    failures.append(None)
    except ApiError as error:
        return [error] * len(asked)
    return failures


#: Topics changed in one slice, with one change of the metadata.
TOPICS_AT_ONCE = 50


def part_of(request: str, start: int) -> str:
    """Return the text by which the controller recognises the part of a request from its ``start``-th topic on."""
    return request if start == 0 else f"{request}-{start}"
