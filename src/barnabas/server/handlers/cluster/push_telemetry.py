"""PushTelemetry (key 72, v0): receive the metrics that a client pushes (KIP-714).

This API is served only if a receiver is configured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.connection import PushTelemetryResponse
from barnabas.server.telemetry.pushing_client import pushing_client

if TYPE_CHECKING:
    from barnabas.protocol.messages.connection import PushTelemetryRequest
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that receives metrics from clients."""
    return PushTelemetryHandler(dependencies).handle_push_telemetry


class PushTelemetryHandler:
    """Passes the metrics to the receiver."""

    __slots__ = ("_queue", "_telemetry")

    def __init__(self, dependencies: BrokerDependencies) -> None:
        assert dependencies.telemetry is not None
        self._telemetry = dependencies.telemetry
        self._queue = dependencies.conversions

    def handle_push_telemetry(
        self, context: RequestContext, request: PushTelemetryRequest
    ) -> PushTelemetryResponse | None:
        """Receive metrics. The error code tells the client to continue, resubscribe or stop.

        As in Kafka, this takes no right. The metrics of a connection are read in several turns, and
        the connection is not read in this time.
        """
        client = pushing_client(context, bytes(request.client_instance_id))
        outcome = self._telemetry.push(request, client)
        if isinstance(outcome, ErrorCode):
            return PushTelemetryResponse(error_code=outcome)
        job = self._queue.submit(
            context.connection,
            outcome,
            lambda error: context.respond(PushTelemetryResponse(error_code=error)),
            context.connection,
        )
        context.on_client_gone(job.cancel)
        return None
