"""CreateAcls (key 30, v0-3) and DeleteAcls (key 31, v0-3): change access control entries (KIP-140).

The active controller changes them. Requests with the number 0, which means unknown, close the
connection, as in Kafka. Version 0 has literal patterns only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.acls import UNKNOWN, AclFilter
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.resources import PatternType
from barnabas.server.handlers.forwarded import forward_request

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.protocol.messages.security import CreateAclsRequest, DeleteAclsRequest
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import NodeDependencies


def create(dependencies: NodeDependencies) -> Handle:
    """Return the handler that creates access control entries."""

    def handle_create_acls(context: RequestContext, request: CreateAclsRequest) -> None:
        context.after(
            _check_creations(request), lambda _: forward_request(dependencies, context, request)
        )

    return handle_create_acls


def delete(dependencies: NodeDependencies) -> Handle:
    """Return the handler that deletes access control entries."""

    def handle_delete_acls(context: RequestContext, request: DeleteAclsRequest) -> None:
        context.after(
            _check_filters(request, context.version),
            lambda _: forward_request(dependencies, context, request),
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
