"""Requests of nodes that go to the controller of this process unchanged.

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
    """Return the handler that passes requests of nodes to the controller of this process.

    The response follows when resulting changes are committed. An inactive controller responds with
    NOT_CONTROLLER.
    """
    controller = dependencies.forwarding

    def handle_controller_request(context: RequestContext, request: Message) -> None:
        controller.send(request, context.respond_exempt, client_context=context)

    return handle_controller_request
