"""The parts of a target used by API functions: each function is called with the request, these parts, and the body.

Runs in handler processes and in the controller, which is a handler of the metadata APIs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rotunda.broker.security.acl.acls import CLUSTER_NAME, Operation, ResourceType
from rotunda.broker.security.acl.checks import operation_of, rejection

if TYPE_CHECKING:
    from rotunda.broker.clock import Clock
    from rotunda.broker.coordinator.coordinators import Coordinators
    from rotunda.broker.ipc.listener_table import ListenerTable
    from rotunda.broker.ipc.request import Request
    from rotunda.broker.metadata.active_controller import ActiveController
    from rotunda.broker.metadata.metadata_cache import MetadataCache
    from rotunda.broker.partitions.partition_manager import PartitionManager
    from rotunda.broker.quotas.quota_manager import QuotaManager
    from rotunda.broker.scheduling.peer_tasks import TargetTasks
    from rotunda.broker.telemetry.receiver import TelemetryReceiver
    from rotunda.shm.tables.client_hosts import ClientHosts


@dataclass(slots=True, frozen=True)
class BrokerContext:
    """The parts of a target used by API functions."""

    cluster_id: str
    clock: Clock
    metadata: MetadataCache
    access: Access
    partitions: PartitionManager
    coordinators: Coordinators
    tasks: TargetTasks
    client_hosts: ClientHosts
    listeners: ListenerTable
    create_topics: Callable[[Sequence[str]], None]
    """Asks the controller to create topics; the result is visible in the metadata."""
    quotas: QuotaManager
    controller: ActiveController | None
    """None except in the controller."""
    telemetry: TelemetryReceiver | None
    """The receiver of client metrics; None without one, and in the controller."""
    apis: Sequence[tuple[int, int, int]]
    """(API key, oldest version, newest version) of the supported APIs."""

    def address_for(self, request: Request) -> tuple[str, int]:
        """Return this broker's host and port for a request's client (``C18``)."""
        return self.listeners[request.listener].address_for(request.session)


class Access:
    """Checks the rights of a request's client, by the checks of the request's API."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    def rejection(
        self,
        request: Request,
        resource_type: ResourceType,
        name: str = CLUSTER_NAME,
        operation: Operation | None = None,
    ) -> int:
        """Return the authorization error for a resource; 0 if allowed."""
        return rejection(self._metadata.authorizer, request.session, request.api_key, resource_type, name, operation)

    def note_denied(self, request: Request, resource_type: ResourceType, name: str) -> None:
        """Record for the request log a denial by the same check in another target."""
        authorizer = self._metadata.authorizer
        if authorizer is not None:
            authorizer.on_denied(operation_of(request.api_key, resource_type), resource_type, name)
