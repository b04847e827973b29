"""AlterClientQuotas: key 49, v0-1. Sets and removes quotas of users, client ids, addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
    from barnabas.server.parts import NodeParts
    from barnabas.server.request import Handle, RequestContext


def handler(parts: NodeParts) -> Handle:
    """The handler of this API."""
    return AlterClientQuotasHandler(parts).handle_alter_client_quotas


class AlterClientQuotasHandler:
    """Hands the request to the active controller."""

    __slots__ = ("_forwarding",)

    def __init__(self, parts: NodeParts) -> None:
        self._forwarding = parts.forwarding

    def handle_alter_client_quotas(
        self, context: RequestContext, request: AlterClientQuotasRequest
    ) -> None:
        """Answered when the quotas are committed."""
        self._forwarding.send(request, context.respond_forwarded, asker=context)
