"""The broker settings of its identity and addresses: ids, roles, listeners and the addresses for clients.

Declarations only. `broker_config` joins them with the others into the one BrokerConfig. Names are Kafka's wherever
Kafka has the key; listeners are validated in `listeners`.
"""

from __future__ import annotations

from dataclasses import dataclass

from rotunda.broker.config.keys import Key, Kind, setting


def _roles_complaint(roles: tuple[str, ...]) -> str | None:
    alone = "a controller without a broker has no meaning, since each broker has its own; use broker,controller"
    return None if "broker" in roles else alone


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class IdentitySettings:
    """Settings of one broker's ids and listeners. Only ever part of a BrokerConfig."""

    node_id: int = setting(
        Key(
            name="node.id",
            kind=Kind.INT,
            default=1,
            least=0,
            doc="The id of this broker in its cluster of one.",
        )
    )
    broker_id: int = setting(
        Key(
            name="broker.id",
            kind=Kind.INT,
            default=1,
            least=0,
            doc="Older name of node.id; if both stand they must agree.",
        )
    )
    broker_rack: str | None = setting(
        Key(
            name="broker.rack",
            kind=Kind.STRING,
            default=None,
            nullable=True,
            doc="The rack that clients are told the broker stands in.",
        )
    )
    listeners: tuple[str, ...] = setting(
        Key(
            name="listeners",
            kind=Kind.LIST,
            default=("PLAINTEXT://127.0.0.1:9092",),
            dynamic=True,
            per_broker=True,
            doc="Addresses to listen on, each NAME://host:port. Port 0 takes a free port; an empty host "
            "means all interfaces. A host that is not loopback needs insecure.listen; without it a listener on all "
            "interfaces that is advertised at a loopback address listens there only. While the broker runs they are "
            "added and removed, within a second or two: a removed one ends its connections with their last answers. "
            "The address of a listener stays.",
        )
    )
    advertised_listeners: tuple[str, ...] | None = setting(
        Key(
            name="advertised.listeners",
            kind=Kind.LIST,
            default=None,
            nullable=True,
            default_text="the listeners; of one on all interfaces the address by which a client has reached it, with "
            "TLS the name that it has asked for, if the certificate has that, else the host name",
            dynamic=True,
            per_broker=True,
            doc="Addresses given to clients, each NAME://host:port with the name of a listener. Port 0 stands "
            "for the port that the listener was given, an empty host for the address by which a client has reached "
            "the listener. Listeners may have the same port here. Set it where the broker is reached by another "
            "address than it has: behind published ports of a container, a proxy or NAT. `rotunda start --advertise` "
            "is short for it.",
        )
    )
    listener_security_protocol_map: str = setting(
        Key(
            name="listener.security.protocol.map",
            kind=Kind.STRING,
            default="PLAINTEXT:PLAINTEXT",
            dynamic=True,
            per_broker=True,
            doc="Which protocol each listener name speaks, each NAME:PROTOCOL. PLAINTEXT is the protocol served.",
        )
    )
    insecure_listen: bool = setting(
        Key(
            name="insecure.listen",
            kind=Kind.BOOLEAN,
            default=False,
            doc="Allow a listener that other machines can reach although clients are not authenticated.",
        )
    )
    process_roles: tuple[str, ...] = setting(
        Key(
            name="process.roles",
            kind=Kind.LIST,
            default=("broker", "controller"),
            choices=("broker", "controller"),
            validator=_roles_complaint,
            doc="What this broker is. It always is both, and its controller is one of its processes.",
        )
    )
    controller_listener_names: tuple[str, ...] | None = setting(
        Key(
            name="controller.listener.names",
            kind=Kind.LIST,
            default=None,
            nullable=True,
            doc="Listeners of these names are not opened: the controller is a process of the broker, and no others "
            "ask it.",
        )
    )


def node_id_complaint(config: IdentitySettings) -> str | None:
    """Return an error if the two names of the id have different values."""
    return None if config.node_id == config.broker_id else f"is {config.node_id} but broker.id is {config.broker_id}"
