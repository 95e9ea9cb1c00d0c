"""The context of an API function: facts of one request, and the parts of the target that runs it.

Runs in handler processes and in the controller, which is a handler of the metadata APIs. Knows nothing of sockets
nor of rings: the connection is a number, the answer a return value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.security.acl.acls import CLUSTER_NAME, Operation, ResourceType
from broker.security.acl.checks import operation_of, refusal

if TYPE_CHECKING:
    from broker.clock import Clock
    from broker.coordinator.coordinators import Coordinators
    from broker.ipc.listener_table import ListenerEntry
    from broker.metadata.active_controller import ActiveController
    from broker.metadata.metadata_cache import MetadataCache
    from broker.partitions.partition_manager import PartitionManager
    from broker.quotas.quota_manager import QuotaManager
    from broker.scheduling.peer_tasks import TargetTasks
    from broker.security.session import Session
    from shm.tables.client_hosts import ClientHosts


@dataclass(slots=True, frozen=True)
class BrokerContext:
    """The parts of a target that API functions work with."""

    cluster_id: str
    clock: Clock
    metadata: MetadataCache
    partitions: PartitionManager
    coordinators: Coordinators
    tasks: TargetTasks
    client_hosts: ClientHosts
    create_topics: Callable[[Sequence[str]], None]
    """Asks the controller to create topics; that it has shows in the metadata."""
    quotas: QuotaManager
    controller: ActiveController | None
    """None but in the controller."""
    apis: Sequence[tuple[int, int, int]]
    """(API key, oldest version, newest version) of what is served."""


@dataclass(slots=True, frozen=True)
class RequestContext:
    """Who asked, on which connection, through which listener, and when (``received_ns``: monotonic)."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    connection_id: int
    sequence: int
    listener: ListenerEntry
    received_ns: int
    broker: BrokerContext
    session: Session
    """The user, and where it comes from."""
    in_slices: bool = False
    """Whether this is done in slices, or something that the connection has asked for before is."""

    @property
    def address(self) -> tuple[str, int]:
        """The host and port of this broker that the client is given (``C18``)."""
        return self.listener.address_for(self.session)

    def refusal(self, resource_type: ResourceType, name: str = CLUSTER_NAME, operation: Operation | None = None) -> int:
        """Return the error with which a resource is refused to who asks, by the checks of the API; 0: it is not."""
        return refusal(self.broker.metadata.authorizer, self.session, self.api_key, resource_type, name, operation)

    def note_denied(self, resource_type: ResourceType, name: str) -> None:
        """Note for the request log what another target has denied by the same check."""
        authorizer = self.broker.metadata.authorizer
        if authorizer is not None:
            authorizer.on_denied(operation_of(self.api_key, resource_type), resource_type, name)
