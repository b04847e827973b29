"""IncrementalAlterConfigs: key 44, v0-1. Sets, deletes, appends to configs (KIP-339)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
    from barnabas.server.parts import ServerParts
    from barnabas.server.request import Handle, RequestContext


def handler(parts: ServerParts) -> Handle:
    """The handler of this API."""
    return IncrementalAlterConfigsHandler(parts).handle_incremental_alter_configs


class IncrementalAlterConfigsHandler:
    """Hands the request to the active controller."""

    __slots__ = ("_forwarding",)

    def __init__(self, parts: ServerParts) -> None:
        self._forwarding = parts.forwarding

    def handle_incremental_alter_configs(
        self, context: RequestContext, request: IncrementalAlterConfigsRequest
    ) -> None:
        """Answered when the configs are committed."""
        self._forwarding.send(request, context.respond)
