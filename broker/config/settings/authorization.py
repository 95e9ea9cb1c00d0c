"""The settings of authorisation: whether ACLs are checked, and the super users. Declarations only."""

from __future__ import annotations

from dataclasses import dataclass

from rotunda.broker.config.keys import Key, Kind, setting

#: The only supported authorizer, by the name of Kafka's.
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def _is_served(name: str) -> str | None:
    if name in ("", STANDARD_AUTHORIZER):
        return None
    return f"a class of Java cannot be loaded, and what it decides would not be decided; use {STANDARD_AUTHORIZER}"


def _are_principals(text: str) -> str | None:
    for entry in filter(None, (each.strip() for each in text.split(";"))):
        if ":" not in entry:
            return f"expected a string in format principalType:principalName but got {entry}"
    return None


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class AuthorizationSettings:
    """The settings of authorisation. Only ever part of a BrokerConfig."""

    authorizer_class_name: str = setting(
        Key(
            name="authorizer.class.name",
            kind=Kind.STRING,
            default="",
            validator=_is_served,
            doc=f"What decides who may do what: {STANDARD_AUTHORIZER}, which asks the ACLs that are kept with the "
            "cluster's metadata. Empty: every client may do everything.",
        )
    )
    super_users: str = setting(
        Key(
            name="super.users",
            kind=Kind.STRING,
            default="",
            validator=_are_principals,
            doc="Principals that may do everything whatever the ACLs say, such as User:admin;User:ops.",
        )
    )
    allow_everyone_if_no_acl_found: bool = setting(
        Key(
            name="allow.everyone.if.no.acl.found",
            kind=Kind.BOOLEAN,
            default=False,
            doc="Whether everybody may do everything with a resource that no ACL is about. Otherwise only super.users "
            "may.",
        )
    )
