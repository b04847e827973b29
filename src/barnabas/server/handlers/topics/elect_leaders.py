"""ElectLeaders (key 43, v0-2): run preferred and, from v1 on, unclean elections (KIP-183, 460)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.protocol.messages.partition_changes import (
        ElectLeadersRequest,
        ElectLeadersResponse,
    )
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import NodeDependencies

_FIRST_WITH_ERROR = 1


def handler(dependencies: NodeDependencies) -> Handle:
    """Return the handler that runs leader elections."""
    return ElectLeadersHandler(dependencies).handle_elect_leaders


class ElectLeadersHandler:
    """Forwards the request to the active controller."""

    __slots__ = ("_forwarding",)

    def __init__(self, dependencies: NodeDependencies) -> None:
        self._forwarding = dependencies.forwarding

    def handle_elect_leaders(self, context: RequestContext, request: ElectLeadersRequest) -> None:
        """Forward the request. The response follows when the new leaders are committed."""

        def respond(response: ElectLeadersResponse) -> None:
            if context.version < _FIRST_WITH_ERROR:
                # v0 has error codes of partitions only.
                response.error_code = ErrorCode.NONE
            context.respond_forwarded(response)

        self._forwarding.send(request, respond, client_context=context)
