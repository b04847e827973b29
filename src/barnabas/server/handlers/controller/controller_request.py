"""Requests of nodes that go to the controller unchanged, whatever their API.

These are AlterPartition (56), AllocateProducerIds (67), ControllerRegistration (70) and
AssignReplicasToDirs (73).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.schema import Message
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import NodeDependencies


def handler(dependencies: NodeDependencies) -> Handle:
    """Return the handler that passes requests of nodes to the controller of this process."""
    return ControllerRequestHandler(dependencies).handle_controller_request


class ControllerRequestHandler:
    """Passes requests to the controller of this process."""

    __slots__ = ("_controller",)

    def __init__(self, dependencies: NodeDependencies) -> None:
        self._controller = dependencies.forwarding

    def handle_controller_request(self, context: RequestContext, request: Message) -> None:
        """Serve a request. The response follows when resulting changes are committed.

        An inactive controller responds with NOT_CONTROLLER.
        """
        self._controller.send(request, context.respond_exempt, client_context=context)
