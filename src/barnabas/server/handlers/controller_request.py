"""Requests of nodes that the controller answers as they come, whatever their API.

AlterPartition (56), AllocateProducerIds (67), ControllerRegistration (70),
AssignReplicasToDirs (73).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.schema import Message
    from barnabas.server.parts import NodeParts
    from barnabas.server.request import Handle, RequestContext


def handler(parts: NodeParts) -> Handle:
    """The handler of these APIs."""
    return ControllerRequestHandler(parts).handle_controller_request


class ControllerRequestHandler:
    """Hands the request to the controller of this process."""

    __slots__ = ("_controller",)

    def __init__(self, parts: NodeParts) -> None:
        self._controller = parts.forwarding

    def handle_controller_request(self, context: RequestContext, request: Message) -> None:
        """Answered when what it comes to is committed; NOT_CONTROLLER by one that is not active."""
        self._controller.send(request, context.respond_exempt, asker=context)
