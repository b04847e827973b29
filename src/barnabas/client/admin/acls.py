"""Access control lists: who may do what to which resources (KIP-11, KIP-290)."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.client.admin.call import AdminCall, raise_error
from barnabas.client.errors import BrokerError, broker_error
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.create_acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
)
from barnabas.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from barnabas.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.protocol.schema import Message

__all__ = [
    "Acl",
    "AclFilter",
    "AclOperation",
    "AclPermission",
    "AclResourceType",
    "DeletedAcls",
    "PatternType",
    "create_acls",
    "delete_acls",
    "describe_acls",
]


class AclResourceType(enum.IntEnum):
    """What can be protected, by Kafka's numbers."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(enum.IntEnum):
    """How the name of a resource is meant; ANY and MATCH are for filters."""

    ANY = 1
    # Whatever would apply to a resource of the name: literal, wildcard and prefix.
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(enum.IntEnum):
    """What is done; ANY is for filters."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(enum.IntEnum):
    """Whether it may be done; ANY is for filters."""

    ANY = 1
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True)
class Acl:
    """One entry."""

    resource_type: AclResourceType
    # "*" with a literal pattern means all; the cluster's is "kafka-cluster".
    resource_name: str
    # "User:NAME", or "User:*" for everybody.
    principal: str
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    # An address, or "*" for all.
    host: str = "*"
    pattern_type: PatternType = PatternType.LITERAL


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Entries that agree in everything that is given."""

    resource_type: AclResourceType = AclResourceType.ANY
    resource_name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY
    host: str | None = None
    pattern_type: PatternType = PatternType.ANY


@dataclass(frozen=True, slots=True)
class DeletedAcls:
    """What one filter deleted."""

    acls: tuple[Acl, ...]
    # Of entries that matched and could not be deleted.
    errors: tuple[BrokerError, ...] = ()


def describe_acls(wanted: AclFilter) -> AdminCall[list[Acl]]:
    """All entries that match."""

    def build(_version: int) -> Message:
        return DescribeAclsRequest(
            resource_type_filter=wanted.resource_type,
            resource_name_filter=wanted.resource_name,
            pattern_type_filter=wanted.pattern_type,
            principal_filter=wanted.principal,
            host_filter=wanted.host,
            operation=wanted.operation,
            permission_type=wanted.permission,
        )

    def read(response: Message) -> list[Acl]:
        assert isinstance(response, DescribeAclsResponse)
        raise_error(response.error_code, "ACLs", response.error_message)
        return [_acl(resource, each) for resource in response.resources for each in resource.acls]

    return AdminCall(ApiKey.DESCRIBE_ACLS, build, read)


def create_acls(acls: Sequence[Acl]) -> AdminCall[dict[Acl, BrokerError | None]]:
    """Create entries; an error or None for each. Those that are there already are no error."""

    def build(_version: int) -> Message:
        return CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=acl.resource_type,
                    resource_name=acl.resource_name,
                    resource_pattern_type=acl.pattern_type,
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission,
                )
                for acl in acls
            ]
        )

    def read(response: Message) -> dict[Acl, BrokerError | None]:
        assert isinstance(response, CreateAclsResponse)
        found: dict[Acl, BrokerError | None] = {}
        for acl, result in zip(acls, response.results, strict=True):
            code, text = result.error_code, result.error_message
            found[acl] = broker_error(code, f"ACL for {acl.principal}", text) if code else None
        return found

    return AdminCall(ApiKey.CREATE_ACLS, build, read)


def delete_acls(
    filters: Sequence[AclFilter],
) -> AdminCall[dict[AclFilter, DeletedAcls | BrokerError]]:
    """Delete all entries that match one of the filters; for each what it deleted, or an error."""

    def build(_version: int) -> Message:
        return DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=each.resource_type,
                    resource_name_filter=each.resource_name,
                    pattern_type_filter=each.pattern_type,
                    principal_filter=each.principal,
                    host_filter=each.host,
                    operation=each.operation,
                    permission_type=each.permission,
                )
                for each in filters
            ]
        )

    def read(response: Message) -> dict[AclFilter, DeletedAcls | BrokerError]:
        assert isinstance(response, DeleteAclsResponse)
        found: dict[AclFilter, DeletedAcls | BrokerError] = {}
        for each, result in zip(filters, response.filter_results, strict=True):
            if result.error_code:
                found[each] = broker_error(result.error_code, "delete ACLs", result.error_message)
            else:
                found[each] = _deleted(result.matching_acls)
        return found

    return AdminCall(ApiKey.DELETE_ACLS, build, read)


def _acl(
    resource: DescribeAclsResource | DeleteAclsMatchingAcl,
    entry: AclDescription | DeleteAclsMatchingAcl,
) -> Acl:
    """The entry, of a resource that stands around it, or beside it in the same struct."""
    return Acl(
        AclResourceType(resource.resource_type),
        resource.resource_name,
        entry.principal,
        AclOperation(entry.operation),
        AclPermission(entry.permission_type),
        entry.host,
        PatternType(resource.pattern_type),
    )


def _deleted(matching: Sequence[DeleteAclsMatchingAcl]) -> DeletedAcls:
    return DeletedAcls(
        tuple(_acl(each, each) for each in matching if not each.error_code),
        tuple(
            broker_error(each.error_code, f"ACL for {each.principal}", each.error_message)
            for each in matching
            if each.error_code
        ),
    )
