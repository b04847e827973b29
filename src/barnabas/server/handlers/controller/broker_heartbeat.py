"""BrokerHeartbeat (key 63, v0-2): record that a broker is alive, and its connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.messages.nodes import BrokerHeartbeatRequest
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import ControllerListenerDependencies


def handler(dependencies: ControllerListenerDependencies) -> Handle:
    """Return the handler that processes heartbeats of brokers."""
    return BrokerHeartbeatHandler(dependencies).handle_broker_heartbeat


class BrokerHeartbeatHandler:
    """Passes heartbeats to the broker watch and to the controller of this process."""

    __slots__ = ("_controller", "_watch")

    def __init__(self, dependencies: ControllerListenerDependencies) -> None:
        self._controller = dependencies.forwarding
        self._watch = dependencies.watch

    def handle_broker_heartbeat(
        self, context: RequestContext, request: BrokerHeartbeatRequest
    ) -> None:
        """Process a heartbeat. The response follows when resulting changes are committed."""
        self._watch.on_heartbeat(context.connection, request.broker_id, request.broker_epoch)
        self._controller.send(request, context.respond_exempt, client_context=context)
