"""The settings of authorisation: whether ACLs are checked, and the super users. Declarations only."""

from __future__ import annotations

from dataclasses import dataclass

from rotunda.broker.config.keys import Kind, setting

#: The only supported authorizer, by the name of Kafka's.
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def _is_served(name: str) -> str | None:
    if name in ("", STANDARD_AUTHORIZER):
        return None
    return f"Java classes cannot be loaded; use {STANDARD_AUTHORIZER}"


def _are_principals(text: str) -> str | None:
    for entry in filter(None, (each.strip() for each in text.split(";"))):
        if ":" not in entry:
            return f"expected a string in format principalType:principalName but got {entry}"
    return None


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class AuthorizationSettings:
    """The settings of authorisation. A part of BrokerConfig."""

    authorizer_class_name: str = setting(
        Kind.STRING,
        "",
        validator=_is_served,
        doc=f"The authorizer: {STANDARD_AUTHORIZER}, with ACLs in the cluster's metadata. Empty: every client has "
        "all rights.",
    )
    super_users: str = setting(
        Kind.STRING,
        "",
        validator=_are_principals,
        doc="Principals with all rights whatever the ACLs, such as User:admin;User:ops.",
    )
    allow_everyone_if_no_acl_found: bool = setting(
        Kind.BOOLEAN,
        False,
        doc="Allow everything on resources without ACLs. Otherwise only super.users may access them.",
    )
