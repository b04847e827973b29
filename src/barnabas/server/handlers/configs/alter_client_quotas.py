"""AlterClientQuotas (key 49, v0-1): set and remove quotas of users, client ids and addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import NodeParts


def handler(parts: NodeParts) -> Handle:
    """Return the handler that changes client quotas."""
    return AlterClientQuotasHandler(parts).handle_alter_client_quotas


class AlterClientQuotasHandler:
    """Forwards the request to the active controller."""

    __slots__ = ("_forwarding",)

    def __init__(self, parts: NodeParts) -> None:
        self._forwarding = parts.forwarding

    def handle_alter_client_quotas(
        self, context: RequestContext, request: AlterClientQuotasRequest
    ) -> None:
        """Forward the request. The response follows when the quotas are committed."""
        self._forwarding.send(request, context.respond_forwarded, client_context=context)
