"""BrokerRegistration (key 62, v0-4): register a broker, and check a previous incarnation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.protocol.messages.nodes import (
        BrokerRegistrationRequest,
        BrokerRegistrationResponse,
    )
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import ControllerListenerDependencies


def handler(dependencies: ControllerListenerDependencies) -> Handle:
    """Return the handler that registers brokers."""
    return BrokerRegistrationHandler(dependencies).handle_broker_registration


class BrokerRegistrationHandler:
    """Passes registrations to the local controller, and duplicates to the broker watch."""

    __slots__ = ("_controller", "_watch")

    def __init__(self, dependencies: ControllerListenerDependencies) -> None:
        self._controller = dependencies.forwarding
        self._watch = dependencies.watch

    def handle_broker_registration(
        self, context: RequestContext, request: BrokerRegistrationRequest
    ) -> None:
        """Register a broker. The response follows when the registration is committed."""

        def on_done(response: BrokerRegistrationResponse) -> None:
            if response.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                self._watch.on_duplicate(request.broker_id)
            context.respond_exempt(response)

        self._controller.send(request, on_done, client_context=context)
