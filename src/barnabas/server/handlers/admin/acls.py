"""CreateAcls (key 30), DeleteAcls (31) and DescribeAcls (29), all v0-3: access control entries.

The active controller changes the entries (KIP-140). Requests with the number 0, which means
unknown, close the connection, as in Kafka. v0 has literal patterns only, v1 adds prefixes
(KIP-290), v2 is flexible and v3 adds users as resources (KIP-373).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.acls import UNKNOWN, AclFilter
from barnabas.protocol.errors import ErrorCode, ProtocolError
from barnabas.protocol.messages.security import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from barnabas.protocol.resources import PatternType
from barnabas.server.handlers.forwarded import forwarded

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from barnabas.metadata.acls import AclsImage
    from barnabas.protocol.messages.security import CreateAclsRequest, DeleteAclsRequest
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.controller_access.controller_access import ControllerAccess
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.dispatch.served_apis import ServedApi


def create_acls(
    served: Mapping[int, ServedApi], forwarding: ControllerAccess, cluster: ClusterView
) -> Handle:
    """Return the handler that creates access control entries."""
    forward = forwarded(served, forwarding, cluster)

    def handle_create_acls(context: RequestContext, request: CreateAclsRequest) -> None:
        context.after(_check_creations(request), lambda _: forward(context, request))

    return handle_create_acls


def delete_acls(
    served: Mapping[int, ServedApi], forwarding: ControllerAccess, cluster: ClusterView
) -> Handle:
    """Return the handler that deletes access control entries."""
    forward = forwarded(served, forwarding, cluster)

    def handle_delete_acls(context: RequestContext, request: DeleteAclsRequest) -> None:
        context.after(
            _check_filters(request, context.version),
            lambda _: forward(context, request),
        )

    return handle_delete_acls


def _check_creations(request: CreateAclsRequest) -> Generator[None, None, None]:
    for each in request.creations:
        numbers = (
            each.resource_type,
            each.resource_pattern_type,
            each.operation,
            each.permission_type,
        )
        if UNKNOWN in numbers:
            raise ProtocolError("an ACL with the number 0, which means unknown")
        yield


def _check_filters(request: DeleteAclsRequest, version: int) -> Generator[None, None, None]:
    for each in request.filters:
        AclFilter.from_request(each, version)
        if version == 0:
            each.pattern_type_filter = int(PatternType.LITERAL)
        yield


_COMPARED_AT_ONCE = 100


def describe_acls(find_acls: Callable[[], AclsImage] | None) -> Handle:
    """Return the handler that lists access control entries."""

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
