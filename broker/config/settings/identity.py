"""The broker settings of its identity and addresses: ids, roles, listeners and the addresses for clients.

Declarations only. `broker_config` joins them with the others into the one BrokerConfig. Names are Kafka's wherever
Kafka has the key; listeners are validated in `listeners`.
"""

from __future__ import annotations

from dataclasses import dataclass

from rotunda.broker.config.keys import Kind, setting


def _roles_complaint(roles: tuple[str, ...]) -> str | None:
    alone = "a controller without a broker is not supported; use broker,controller"
    return None if "broker" in roles else alone


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class IdentitySettings:
    """Settings of one broker's ids and listeners. A part of BrokerConfig."""

    node_id: int = setting(Kind.INT, 1, least=0, doc="The id of this broker in its cluster of one.")
    broker_id: int = setting(Kind.INT, 1, least=0, doc="Older name of node.id; if both are set they must be equal.")
    broker_rack: str | None = setting(
        Kind.STRING, None, nullable=True, doc="The broker's rack, as reported to clients."
    )
    listeners: tuple[str, ...] = setting(
        Kind.LIST,
        ("PLAINTEXT://127.0.0.1:9092",),
        dynamic=True,
        per_broker=True,
        doc="Addresses to listen on, each NAME://host:port. Port 0: any free port; an empty host: all interfaces. "
        "A host that is not loopback needs insecure.listen; without it a listener on all interfaces that is "
        "advertised at a loopback address listens on loopback only. Listeners can be added and removed while "
        "the broker runs, within two seconds; the connections of a removed one are closed after their last "
        "responses. The address of a listener cannot change.",
    )
    advertised_listeners: tuple[str, ...] | None = setting(
        Kind.LIST,
        None,
        nullable=True,
        default_text="the listeners; for one on all interfaces the address by which the client reached it, with "
        "TLS its server name, if in the certificate, else the host name",
        dynamic=True,
        per_broker=True,
        doc="Addresses given to clients, each NAME://host:port with the name of a listener. Port 0: the port that "
        "the listener has; an empty host: the address by which the client reached the listener. Several may "
        "have the same port. Set it where clients use another address than the broker's: with published ports "
        "of a container, a proxy or NAT. Short form: `rotunda start --advertise`.",
    )
    listener_security_protocol_map: str = setting(
        Kind.STRING,
        "PLAINTEXT:PLAINTEXT",
        dynamic=True,
        per_broker=True,
        doc="The security protocol of each listener name, as NAME:PROTOCOL.",
    )
    insecure_listen: bool = setting(
        Kind.BOOLEAN, False, doc="Allow unauthenticated clients on listeners that other machines can reach."
    )
    process_roles: tuple[str, ...] = setting(
        Kind.LIST,
        ("broker", "controller"),
        choices=("broker", "controller"),
        validator=_roles_complaint,
        doc="The roles of this broker: always both, the controller is one of its processes.",
    )
    controller_listener_names: tuple[str, ...] | None = setting(
        Kind.LIST,
        None,
        nullable=True,
        doc="Listeners of these names are not opened: the controller is a process of the broker without clients "
        "of its own.",
    )


def node_id_complaint(config: IdentitySettings) -> str | None:
    """Return an error if the two names of the id have different values."""
    return None if config.node_id == config.broker_id else f"is {config.node_id} but broker.id is {config.broker_id}"
