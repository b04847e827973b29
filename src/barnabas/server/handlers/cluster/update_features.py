"""UpdateFeatures (key 57, v0-2): change feature levels of the cluster (KIP-584, KIP-778).

v1 adds upgrade types and validation without changes. v2 has one error for all features (KIP-1022).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.messages.update_features import UpdateFeaturesRequest
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import NodeParts


def handler(parts: NodeParts) -> Handle:
    """Return the handler that changes feature levels."""
    return UpdateFeaturesHandler(parts).handle_update_features


class UpdateFeaturesHandler:
    """Forwards the request to the active controller."""

    __slots__ = ("_forwarding",)

    def __init__(self, parts: NodeParts) -> None:
        self._forwarding = parts.forwarding

    def handle_update_features(
        self, context: RequestContext, request: UpdateFeaturesRequest
    ) -> None:
        """Forward the request. The response follows when the levels are committed."""
        self._forwarding.send(request, context.respond_forwarded, client_context=context)
