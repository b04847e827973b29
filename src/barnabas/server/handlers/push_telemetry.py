"""PushTelemetry: key 72, v0. Takes the metrics that a client was asked for (KIP-714).

Served only where a receiver is configured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.messages.push_telemetry import PushTelemetryResponse
from barnabas.server.telemetry.pushing_client import pushing_client

if TYPE_CHECKING:
    from barnabas.protocol.messages.push_telemetry import PushTelemetryRequest
    from barnabas.server.parts import ServerParts
    from barnabas.server.request import Handle, RequestContext


def handler(parts: ServerParts) -> Handle:
    """The handler of this API."""
    return PushTelemetryHandler(parts).handle_push_telemetry


class PushTelemetryHandler:
    """Hands the metrics to the receiver."""

    __slots__ = ("_telemetry",)

    def __init__(self, parts: ServerParts) -> None:
        assert parts.telemetry is not None
        self._telemetry = parts.telemetry

    def handle_push_telemetry(
        self, context: RequestContext, request: PushTelemetryRequest
    ) -> PushTelemetryResponse:
        """The error says whether the client is to go on, to ask anew, or to stop."""
        client = pushing_client(context, bytes(request.client_instance_id))
        return PushTelemetryResponse(error_code=self._telemetry.push(request, client))
