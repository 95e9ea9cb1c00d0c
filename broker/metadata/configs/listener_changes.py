"""Dynamic changes of listeners (`A30`): listeners are added and removed, and their advertised addresses changed.

The rule runs in the controller before it stores a change. A new address is bound for a moment: if it is in use, the
request fails with an error and nothing changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rotunda.broker.config.bound_socket import bound_socket
from rotunda.broker.errors import ApiError, BootFailed
from rotunda.broker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from rotunda.broker.config.broker_config import BrokerConfig
    from rotunda.broker.config.listeners import Listener


def check_listeners(old: BrokerConfig, new: BrokerConfig) -> None:
    """Raise ApiError if an open listener would change, or a new one cannot be opened."""
    before = {listener.name: listener for listener in old.bound_listeners}
    for listener in new.bound_listeners:
        known = before.get(listener.name, listener)
        if listener.protocol != known.protocol:
            text = f"Security protocol cannot be updated for existing listener {listener.name}"
            raise ApiError(ErrorCode.INVALID_REQUEST, text)
        if listener != known:
            text = (
                f"Configs cannot be updated dynamically for existing listener {listener.name}: it is {known}, and "
                f"would be {listener}; restart the broker, or create a listener of another name"
            )
            raise ApiError(ErrorCode.INVALID_REQUEST, text)
    names = {listener.name for listener in new.bound_listeners}
    # The port of a removed listener is free by the time that the new one is opened.
    freed = {listener.port for name, listener in before.items() if name not in names}
    for listener in new.bound_listeners:
        if listener.name not in before and listener.port not in freed - {0}:
            _try(listener)


def _try(listener: Listener) -> None:
    try:
        bound_socket(listener).close()
    except BootFailed as failure:
        text = f"{failure.reason}; nothing has changed: give the listener another address"
        raise ApiError(ErrorCode.INVALID_REQUEST, text) from failure
