"""Access control lists: which principals may access which resources (KIP-11, KIP-290)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.client.admin.call import AdminCall, raise_error
from barnabas.client.errors import BrokerError, broker_error
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.security import (
    AclCreation,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from barnabas.protocol.resources import AclOperation, AclPermission, AclResourceType, PatternType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.protocol.schema import Message

__all__ = ["Acl", "AclFilter", "AclOperation", "AclPermission", "AclResourceType", "PatternType"]


@dataclass(frozen=True, slots=True)
class Acl:
    """One access control entry."""

    resource_type: AclResourceType
    # With a literal pattern, "*" means all; the cluster resource is named "kafka-cluster".
    resource_name: str
    # "User:NAME", or "User:*" for all users.
    principal: str
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    # An IP address, or "*" for all.
    host: str = "*"
    pattern_type: PatternType = PatternType.LITERAL


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Selects the entries that match all given fields; None and ANY match everything."""

    resource_type: AclResourceType = AclResourceType.ANY
    resource_name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY
    host: str | None = None
    pattern_type: PatternType = PatternType.ANY


@dataclass(frozen=True, slots=True)
class DeletedAcls:
    """The entries that one filter deleted."""

    acls: tuple[Acl, ...]
    # Errors of entries that matched but could not be deleted.
    errors: tuple[BrokerError, ...] = ()


def describe_acls(wanted: AclFilter) -> AdminCall[list[Acl]]:
    """Return all entries that match the filter."""

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
    """Create entries; return an error or None for each. An existing entry is not an error."""

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
    """Delete all entries that match; return the deleted entries or an error for each filter."""

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
    """Build an entry; its resource is in the same struct or in the enclosing one."""
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
