"""GetTelemetrySubscriptions (key 71, v0) and PushTelemetry (key 72, v0): metrics of clients.

The first tells a client which metrics to push, the second receives them (KIP-714). Both are served
only if a receiver is configured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.connection import (
    GetTelemetrySubscriptionsResponse,
    PushTelemetryResponse,
)
from barnabas.protocol.schema import ZERO_UUID
from barnabas.server.metrics.client_telemetry import ACCEPTED_COMPRESSIONS, pushing_client

if TYPE_CHECKING:
    from barnabas.protocol.messages.connection import (
        GetTelemetrySubscriptionsRequest,
        PushTelemetryRequest,
    )
    from barnabas.runtime.rng import Rng
    from barnabas.server.conversion.conversion_queue import ConversionQueue
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.metrics.client_telemetry import ClientTelemetry


def get_telemetry_subscriptions(telemetry: ClientTelemetry | None, rng: Rng) -> Handle:
    """Return the handler that tells clients which metrics to push."""
    assert telemetry is not None

    def handle_get_telemetry_subscriptions(
        context: RequestContext, request: GetTelemetrySubscriptionsRequest
    ) -> GetTelemetrySubscriptionsResponse:
        """Return the client's subscription. Requests that are too early get an error.

        The error is THROTTLING_QUOTA_EXCEEDED.
        """
        instance_id = bytes(request.client_instance_id)
        if instance_id == ZERO_UUID:
            instance_id = rng.uuid()
        subscription = telemetry.get(instance_id, pushing_client(context, instance_id))
        if isinstance(subscription, ErrorCode):
            return GetTelemetrySubscriptionsResponse(
                error_code=subscription,
                client_instance_id=ZERO_UUID,
                subscription_id=0,
                accepted_compression_types=[],
                push_interval_ms=0,
                telemetry_max_bytes=0,
                delta_temporality=False,
                requested_metrics=[],
            )
        return GetTelemetrySubscriptionsResponse(
            error_code=ErrorCode.NONE,
            client_instance_id=instance_id,
            subscription_id=subscription.subscription_id,
            accepted_compression_types=list(ACCEPTED_COMPRESSIONS),
            push_interval_ms=subscription.push_interval_ms,
            telemetry_max_bytes=telemetry.max_bytes,
            delta_temporality=True,
            requested_metrics=list(subscription.metrics),
        )

    return handle_get_telemetry_subscriptions


def push_telemetry(telemetry: ClientTelemetry | None, conversions: ConversionQueue) -> Handle:
    """Return the handler that receives metrics from clients."""
    queue = conversions
    assert telemetry is not None

    def handle_push_telemetry(
        context: RequestContext, request: PushTelemetryRequest
    ) -> PushTelemetryResponse | None:
        """Receive metrics. The error code tells the client to continue, resubscribe or stop.

        As in Kafka, this takes no right. The metrics of a connection are read in several turns, and
        the connection is not read in this time.
        """
        client = pushing_client(context, bytes(request.client_instance_id))
        outcome = telemetry.push(request, client)
        if isinstance(outcome, ErrorCode):
            return PushTelemetryResponse(error_code=outcome)
        job = queue.submit(
            context.connection,
            outcome,
            lambda error: context.respond(PushTelemetryResponse(error_code=error)),
            context.connection,
        )
        context.on_client_gone(job.cancel)
        return None

    return handle_push_telemetry
