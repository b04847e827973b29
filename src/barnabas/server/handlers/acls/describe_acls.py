"""DescribeAcls (key 29, v0-3): list access control entries (KIP-140; v1 patterns, KIP-290)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.acls import AclFilter
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.security import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.metadata.acls import AclsImage
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import NodeDependencies

_COMPARED_AT_ONCE = 100


def handler(dependencies: NodeDependencies) -> Handle:
    """Return the handler that lists access control entries."""
    find_acls = dependencies.find_acls

    def handle_describe_acls(
        context: RequestContext, request: DescribeAclsRequest
    ) -> DescribeAclsResponse | None:
        acl_filter = AclFilter.from_request(request, context.version)
        if find_acls is None:
            return DescribeAclsResponse(
                error_code=ErrorCode.SECURITY_DISABLED,
                error_message="No Authorizer is configured on the broker",
                resources=[],
            )
        return context.in_slices(_build_response(find_acls(), acl_filter))

    return handle_describe_acls


def _build_response(
    acls: AclsImage, acl_filter: AclFilter
) -> Generator[None, None, DescribeAclsResponse]:
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for number, (_, acl) in enumerate(acls):
        if number % _COMPARED_AT_ONCE == 0:
            yield
        if not acl_filter.matches(acl):
            continue
        key = (acl.resource_type, acl.resource_name, acl.pattern_type)
        resource = resources.get(key)
        if resource is None:
            resource = resources[key] = DescribeAclsResource(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
                acls=[],
            )
        resource.acls.append(
            AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
        )
    return DescribeAclsResponse(
        error_code=ErrorCode.NONE, error_message="", resources=list(resources.values())
    )
