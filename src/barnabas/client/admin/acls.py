"""Access control lists: which principals may access which resources (KIP-11, KIP-290)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.client.admin.sender import checked, fixed_call, raise_error
from barnabas.client.connections.cluster import ANY_NODE, CONTROLLER
from barnabas.client.errors import BrokerError, broker_error, error_or_none
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

    from barnabas.client.admin.sender import AdminSender, Plan

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


def describe_acls(sender: AdminSender, wanted: AclFilter | None = None) -> Plan[list[Acl]]:
    """Describe the entries that match the filter; None means all entries."""
    selected = wanted or AclFilter()
    request = DescribeAclsRequest(
        resource_type_filter=selected.resource_type,
        resource_name_filter=selected.resource_name,
        pattern_type_filter=selected.pattern_type,
        principal_filter=selected.principal,
        host_filter=selected.host,
        operation=selected.operation,
        permission_type=selected.permission,
    )

    def read(response: DescribeAclsResponse) -> list[Acl]:
        raise_error(response.error_code, "ACLs", response.error_message)
        return [_acl(resource, each) for resource in response.resources for each in resource.acls]

    return sender.send(ANY_NODE, fixed_call(request, read))


def create_acls(
    sender: AdminSender, entries: Sequence[Acl], *, raise_errors: bool = True
) -> Plan[dict[Acl, BrokerError | None]]:
    """Create access control entries; an existing entry is not an error.

    Returns:
        An error or None for each entry.

    Raises:
        AdminResultsError: an entry was not created; not raised with `raise_errors=False`.
    """
    creations = [
        AclCreation(
            resource_type=acl.resource_type,
            resource_name=acl.resource_name,
            resource_pattern_type=acl.pattern_type,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission,
        )
        for acl in entries
    ]

    def read(response: CreateAclsResponse) -> dict[Acl, BrokerError | None]:
        return {
            acl: error_or_none(each.error_code, f"ACL for {acl.principal}", each.error_message)
            for acl, each in zip(entries, response.results, strict=True)
        }

    call = fixed_call(CreateAclsRequest(creations=creations), read)
    return checked(sender.send(CONTROLLER, call), raise_errors=raise_errors)


def delete_acls(
    sender: AdminSender, filters: Sequence[AclFilter], *, raise_errors: bool = True
) -> Plan[dict[AclFilter, DeletedAcls | BrokerError]]:
    """Delete all entries that match one of the filters.

    Returns:
        The deleted entries, or an error, for each filter.

    Raises:
        AdminResultsError: a filter failed; not raised with `raise_errors=False`.
    """
    wanted = [
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

    def read(response: DeleteAclsResponse) -> dict[AclFilter, DeletedAcls | BrokerError]:
        return {
            each: error_or_none(result.error_code, "delete ACLs", result.error_message)
            or _deleted(result.matching_acls)
            for each, result in zip(filters, response.filter_results, strict=True)
        }

    call = fixed_call(DeleteAclsRequest(filters=wanted), read)
    return checked(sender.send(CONTROLLER, call), raise_errors=raise_errors)


def _acl(
    resource: DescribeAclsResource | DeleteAclsMatchingAcl,
    entry: AclDescription | DeleteAclsMatchingAcl,
) -> Acl:
    """Build an entry; its resource is in the same struct or in the enclosing one."""
    return Acl(
        resource_type=AclResourceType(resource.resource_type),
        resource_name=resource.resource_name,
        principal=entry.principal,
        operation=AclOperation(entry.operation),
        permission=AclPermission(entry.permission_type),
        host=entry.host,
        pattern_type=PatternType(resource.pattern_type),
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
