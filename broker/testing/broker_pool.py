"""The brokers of a test session, by settings: started on first use, stopped at its end."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rotunda.broker.errors import UsageError
from rotunda.broker.testing.running_broker import ExternalBroker, RotundaBroker

Broker = RotundaBroker | ExternalBroker


class BrokerPool:
    """The brokers of one session; unset options are empty (`plugin`)."""

    def __init__(self, external: str, config: str, keep: str) -> None:
        self._external = external
        self._config_file = config
        self._keep = keep
        self._brokers: dict[str, Broker] = {}
        #: These, and the brokers that tests start and stop themselves.
        self._all: list[Broker] = []

    def of(self, settings: Mapping[str, object]) -> Broker:
        """Return the broker with these settings. Raises UsageError for settings of an external broker."""
        key = json.dumps(settings, sort_keys=True, default=str)
        if key not in self._brokers:
            self._brokers[key] = self.new(settings)
        return self._brokers[key]

    def new(self, settings: Mapping[str, object]) -> Broker:
        """Start and return a new broker."""
        if self._external:
            if settings:
                raise UsageError("an external broker (--rotunda-external) has the settings that it has")
            return self._noted(ExternalBroker(self._external))
        keep = None
        if self._keep:
            Path(self._keep).mkdir(parents=True, exist_ok=True)
            keep = Path(tempfile.mkdtemp(prefix="broker-", dir=self._keep)).absolute()
        config_file = Path(self._config_file) if self._config_file else None
        return self._noted(RotundaBroker(settings, config=config_file, keep=keep).start())

    def totals(self) -> dict[Broker, tuple[int, int]]:
        """Return the log length and the number of faults of each started broker."""
        return {each: (len(each.log_text()), len(each.faults)) for each in self._all if not each.is_external}

    def clear_faults(self) -> None:
        """Cancel the faults of all brokers."""
        for broker in self._all:
            broker.clear_faults()

    def stop(self) -> None:
        """Stop all brokers in parallel."""
        for broker in self._brokers.values():
            broker.begin_stop()
        for broker in self._brokers.values():
            broker.stop()
        self._brokers.clear()
        self._all.clear()

    def _noted(self, broker: Broker) -> Broker:
        self._all.append(broker)
        return broker
