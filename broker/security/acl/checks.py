"""The authorisation checks of each API: the one table of API, resource, operation and error.

Handlers of an API look up its checks here, so that the code and docs/authorisation.md agree. The checks are those of
Kafka 4.4 (KafkaApis, ControllerApis), in its order. Pure; runs in handlers and the controller.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.security.acl.acls import CLUSTER_NAME, Operation, ResourceType
from rotunda.broker.security.acl.authorizer import Authorizer
from rotunda.broker.security.session import Session


class Check(NamedTuple):
    """One check: the operation on a resource of a type that an API requires, and the error of a denial.

    ``error`` is None if a denied resource is omitted from the response. A check that ``guards`` runs before the API's
    function and rejects the whole request.
    """

    resource_type: ResourceType
    operation: Operation
    error: ErrorCode | None
    of: str
    """The resource, for the page."""
    remark: str = ""
    guards: bool = False


_TOPIC, _GROUP, _CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
#: Errors of a denial, by type of resource.
ERRORS: Final = {
    _TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    _GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    _CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    _TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def _of(resource_type: ResourceType, operation: Operation, of: str, remark: str = "") -> Check:
    return Check(resource_type, operation, ERRORS[resource_type], of, remark)


def _hidden(resource_type: ResourceType, operation: Operation, of: str, remark: str = "") -> Check:
    return Check(resource_type, operation, None, of, remark)


def _cluster(operation: Operation, remark: str = "") -> tuple[Check]:
    return (_guard(_of(_CLUSTER, operation, "the cluster", remark)),)


def _guard(check: Check) -> Check:
    return check._replace(guards=True)


def _group(operation: Operation, remark: str = "") -> Check:
    return _of(_GROUP, operation, "the group", remark)


def _topics(operation: Operation, remark: str = "") -> Check:
    return _of(_TOPIC, operation, "each topic", remark)


def _transaction(operation: Operation, remark: str = "") -> Check:
    return _of(_TRANSACTIONAL_ID, operation, "the transactional id", remark)


_MAY_SEE_OPERATIONS = _hidden(
    _CLUSTER, Operation.DESCRIBE, "the cluster", "if the authorised operations are requested; without it they are empty"
)
_SETTINGS = "of loggers and of client metrics"

CHECKS: Final[Mapping[ApiKey, tuple[Check, ...]]] = MappingProxyType(
    {
        ApiKey.PRODUCE: (
            _transaction(Operation.WRITE, "if records are transactional; the error is returned for every partition"),
            _topics(Operation.WRITE, "checked before the existence of the topic, except for an unknown id"),
        ),
        ApiKey.FETCH: (_topics(Operation.READ, "checked before the existence of the topic, except for an unknown id"),),
        ApiKey.LIST_OFFSETS: (_topics(Operation.DESCRIBE),),
        ApiKey.METADATA: (
            _topics(Operation.DESCRIBE, "omitted if all topics are requested; by name without the topic id"),
            _of(_CLUSTER, Operation.CREATE, "the cluster", "for topics to create; or, for each of them,"),
            _of(_TOPIC, Operation.CREATE, "each topic to be created", "TOPIC_AUTHORIZATION_FAILED without both"),
            _MAY_SEE_OPERATIONS,
        ),
        ApiKey.SHARE_GROUP_HEARTBEAT: (
            _group(Operation.READ),
            _topics(Operation.DESCRIBE, "the whole request has the error if one is denied"),
        ),
        ApiKey.SHARE_GROUP_DESCRIBE: (
            _of(_GROUP, Operation.DESCRIBE, "each group"),
            _of(_TOPIC, Operation.DESCRIBE, "each topic of a member's assignment", "the group has the error"),
        ),
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (
            _of(_GROUP, Operation.DESCRIBE, "each group"),
            _topics(Operation.DESCRIBE, "left out where all topics are asked for"),
        ),
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: (_group(Operation.READ), _topics(Operation.READ)),
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: (_group(Operation.DELETE), _topics(Operation.READ)),
        ApiKey.SHARE_FETCH: (_group(Operation.READ), _topics(Operation.READ)),
        ApiKey.SHARE_ACKNOWLEDGE: (_group(Operation.READ), _topics(Operation.READ)),
        ApiKey.OFFSET_COMMIT: (_group(Operation.READ), _topics(Operation.READ)),
        ApiKey.OFFSET_FETCH: (
            _group(Operation.DESCRIBE),
            _topics(Operation.DESCRIBE, "omitted if all topics are requested"),
        ),
        ApiKey.FIND_COORDINATOR: (
            _of(_GROUP, Operation.DESCRIBE, "each group"),
            _of(_TRANSACTIONAL_ID, Operation.DESCRIBE, "each transactional id"),
            _of(_CLUSTER, Operation.CLUSTER_ACTION, "the cluster", "for partitions of share groups"),
        ),
        ApiKey.JOIN_GROUP: (_guard(_group(Operation.READ)),),
        ApiKey.HEARTBEAT: (_guard(_group(Operation.READ)),),
        ApiKey.LEAVE_GROUP: (_guard(_group(Operation.READ)),),
        ApiKey.SYNC_GROUP: (_guard(_group(Operation.READ)),),
        ApiKey.DESCRIBE_GROUPS: (_of(_GROUP, Operation.DESCRIBE, "each group"),),
        ApiKey.LIST_GROUPS: (
            _hidden(_CLUSTER, Operation.DESCRIBE, "the cluster", "lists all groups; without it"),
            _hidden(_GROUP, Operation.DESCRIBE, "each group"),
        ),
        ApiKey.CREATE_TOPICS: (
            _of(_CLUSTER, Operation.CREATE, "the cluster", "or, for each topic,"),
            _of(_TOPIC, Operation.CREATE, "each topic", "TOPIC_AUTHORIZATION_FAILED without both"),
            _of(_TOPIC, Operation.DESCRIBE_CONFIGS, "each topic", "topic_config_error_code instead of the settings"),
        ),
        ApiKey.DELETE_TOPICS: (
            _of(_CLUSTER, Operation.DELETE, "the cluster", "or, for each topic,"),
            _of(_TOPIC, Operation.DESCRIBE, "each topic", "checked before the existence of the topic"),
            _of(_TOPIC, Operation.DELETE, "each topic"),
        ),
        ApiKey.DELETE_RECORDS: (_topics(Operation.DELETE),),
        ApiKey.INIT_PRODUCER_ID: (
            _transaction(Operation.WRITE, "if set; otherwise"),
            _of(_CLUSTER, Operation.IDEMPOTENT_WRITE, "the cluster", "or WRITE of any topic (KIP-679)"),
        ),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: (
            _hidden(_CLUSTER, Operation.CLUSTER_ACTION, "the cluster", "or, for each topic,"),
            _topics(Operation.DESCRIBE),
        ),
        ApiKey.ADD_PARTITIONS_TO_TXN: (
            _of(_CLUSTER, Operation.CLUSTER_ACTION, "the cluster", "only this, from version 4"),
            _transaction(Operation.WRITE),
            _topics(Operation.WRITE, "OPERATION_NOT_ATTEMPTED for the others"),
        ),
        ApiKey.ADD_OFFSETS_TO_TXN: (_guard(_transaction(Operation.WRITE)), _guard(_group(Operation.READ))),
        ApiKey.END_TXN: (_guard(_transaction(Operation.WRITE)),),
        ApiKey.WRITE_TXN_MARKERS: (
            _hidden(_CLUSTER, Operation.ALTER, "the cluster", "or"),
            _of(_CLUSTER, Operation.CLUSTER_ACTION, "the cluster"),
        ),
        ApiKey.TXN_OFFSET_COMMIT: (
            _guard(_transaction(Operation.WRITE)),
            _guard(_group(Operation.READ)),
            _topics(Operation.READ),
        ),
        ApiKey.DESCRIBE_ACLS: _cluster(Operation.DESCRIBE),
        ApiKey.CREATE_ACLS: _cluster(Operation.ALTER),
        ApiKey.DELETE_ACLS: _cluster(Operation.ALTER),
        ApiKey.DESCRIBE_CONFIGS: (
            _of(_CLUSTER, Operation.DESCRIBE_CONFIGS, "the cluster", f"for settings of brokers, {_SETTINGS}"),
            _of(_TOPIC, Operation.DESCRIBE_CONFIGS, "each topic"),
            _of(_GROUP, Operation.DESCRIBE_CONFIGS, "each group"),
        ),
        ApiKey.ALTER_CONFIGS: (
            _of(_CLUSTER, Operation.ALTER_CONFIGS, "the cluster", f"for settings of brokers, {_SETTINGS}"),
            _of(_TOPIC, Operation.ALTER_CONFIGS, "each topic"),
            _of(_GROUP, Operation.ALTER_CONFIGS, "each group"),
        ),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: (
            _of(_CLUSTER, Operation.ALTER_CONFIGS, "the cluster", f"for settings of brokers, {_SETTINGS}"),
            _of(_TOPIC, Operation.ALTER_CONFIGS, "each topic"),
            _of(_GROUP, Operation.ALTER_CONFIGS, "each group"),
        ),
        ApiKey.ALTER_REPLICA_LOG_DIRS: _cluster(Operation.ALTER, "the error is returned for every partition"),
        ApiKey.DESCRIBE_LOG_DIRS: _cluster(Operation.DESCRIBE),
        ApiKey.CREATE_PARTITIONS: (_topics(Operation.ALTER),),
        ApiKey.DELETE_GROUPS: (_of(_GROUP, Operation.DELETE, "each group"),),
        ApiKey.ELECT_LEADERS: _cluster(Operation.ALTER),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: _cluster(Operation.ALTER),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: _cluster(Operation.DESCRIBE),
        ApiKey.OFFSET_DELETE: (_guard(_group(Operation.DELETE)), _topics(Operation.READ)),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: _cluster(Operation.DESCRIBE_CONFIGS),
        ApiKey.ALTER_CLIENT_QUOTAS: _cluster(Operation.ALTER_CONFIGS),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _cluster(Operation.DESCRIBE),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _cluster(Operation.ALTER),
        ApiKey.DESCRIBE_QUORUM: _cluster(Operation.DESCRIBE),
        ApiKey.UPDATE_FEATURES: _cluster(Operation.ALTER),
        ApiKey.DESCRIBE_CLUSTER: (_MAY_SEE_OPERATIONS,),
        ApiKey.DESCRIBE_PRODUCERS: (_topics(Operation.READ),),
        ApiKey.DESCRIBE_TRANSACTIONS: (
            _of(_TRANSACTIONAL_ID, Operation.DESCRIBE, "each transactional id"),
            _hidden(_TOPIC, Operation.DESCRIBE, "each topic of a transaction"),
        ),
        ApiKey.LIST_TRANSACTIONS: (_hidden(_TRANSACTIONAL_ID, Operation.DESCRIBE, "each transactional id"),),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: (
            _guard(_group(Operation.READ)),
            _of(_TOPIC, Operation.DESCRIBE, "each topic subscribed to by name", "a pattern skips others"),
        ),
        ApiKey.CONSUMER_GROUP_DESCRIBE: (
            _of(_GROUP, Operation.DESCRIBE, "each group"),
            _of(_TOPIC, Operation.DESCRIBE, "each topic assigned", "the whole group is denied"),
        ),
        ApiKey.LIST_CONFIG_RESOURCES: _cluster(Operation.DESCRIBE_CONFIGS),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: (_topics(Operation.DESCRIBE, "omitted if all topics are requested"),),
    }
)

#: APIs without a check, for any client that has authenticated where that is required.
FREE: Final = frozenset(
    {
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.PUSH_TELEMETRY,
    }
)

#: By API and type of resource, and by these and the operation.
_FIRST: Final = {(int(api), check.resource_type): check for api, checks in CHECKS.items() for check in checks[::-1]}
_EACH: Final = {
    (api, check.resource_type, check.operation): check for api, checks in CHECKS.items() for check in checks
}


def operation_of(api_key: int, resource_type: ResourceType) -> Operation:
    """Return the operation of an API's first check for a resource type."""
    return _FIRST[api_key, resource_type].operation


def rejection(
    authorizer: Authorizer | None,
    session: Session,
    api_key: int,
    resource_type: ResourceType,
    name: str = CLUSTER_NAME,
    operation: Operation | None = None,
) -> int:
    """Return the error with which an API denies a resource to a client, 0 if allowed; LEFT_OUT: omitted. HOT.

    ``operation``: selects one of the checks for that resource type; without it the first is used.
    """
    if authorizer is None:
        return 0
    check = _FIRST[api_key, resource_type] if operation is None else _EACH[ApiKey(api_key), resource_type, operation]
    error = check.error
    if authorizer.allows(session, check.operation, resource_type, name, is_asked_for=error is not None):
        return 0
    return LEFT_OUT if error is None else int(error)


#: Instead of an error: the resource is omitted from the response.
LEFT_OUT: Final = -1

_HEAD = """\
# Authorisation: the checks of each API

With `authorizer.class.name` set, every request passes these checks, those of Apache Kafka 4.4 in its order. APIs that
are not listed need no right. A failed check is answered with the resource's `..._AUTHORIZATION_FAILED`, for example
`TOPIC_AUTHORIZATION_FAILED`; *left out* means that the client does not see the resource.

A waiting Fetch is checked again when ACLs change; Kafka does not do so. Printed from `broker/security/acl/checks.py`.

| API | resource | operation | remarks |
|---|---|---|---|"""


def describe_markdown() -> str:
    """Return the text of docs/authorisation.md."""
    rows = []
    for api, checks in sorted(CHECKS.items()):
        for number, check in enumerate(checks):
            name = "" if number else api.name
            remarks = filter(None, ("left out" if check.error is None else "", check.remark))
            rows.append(f"| {name} | {check.of} | {check.operation.name} | {'; '.join(remarks)} |")
    return "\n".join([_HEAD, *rows, ""])
